"""Compute the built-in description of HeartSteps V1 from the cleaned public CSV.

python scripts/fit_heartsteps.py HS1_cleaned_for_simulation.csv
"""

import json
import sys
from pathlib import Path

from mebandit.environments import heartsteps

if __name__ == "__main__":
    description = heartsteps.describe_study(heartsteps.read_study(sys.argv[1]))
    target = Path(heartsteps.__file__).with_name("heartsteps.json")
    target.write_text(json.dumps(description, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(description['users'])} users, {sum(u['rows'] for u in description['users'])} rows -> {target}")
