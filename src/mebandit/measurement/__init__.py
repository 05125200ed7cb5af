"""The error of the predictions: where Σe comes from, and whether it may be subtracted at all.

The correction for measurement error wants a prediction with classical error, x̃ = x + ε with ε uncorrelated with x, and Σe = Var ε. An
`ErrorModel` says how far a prediction is from that, and gets it there:

    E[x̃ | x] = b + B x,  Var(x̃ | x) = Ω      what the prediction is
    B⁻¹ (x̃ - b) = x + ε,  Σe = B⁻¹ Ω B⁻ᵀ      what the estimators want: `unbias(predicted)` and `error_cov`

With classical error b = 0 and B = I. A well-calibrated model predicts x̃ = E[x | what it saw]: its error is uncorrelated with x̃ and not with
x (Berkson error), B is the reliability of x̃ and not I, and subtracting Var(x̃ - x) from raw predictions over-corrects.
"""

from mebandit.measurement.berkson import BerksonWarning, Overcorrection, overcorrection, warn_if_berkson
from mebandit.measurement.confusion import from_confusion
from mebandit.measurement.hypotheses import ChiSquare, chi_square_tail
from mebandit.measurement.joining import join
from mebandit.measurement.known import from_known
from mebandit.measurement.model import ErrorModel
from mebandit.measurement.replicates import from_replicates
from mebandit.measurement.reported_variances import from_variances
from mebandit.measurement.validation import from_validation

__all__ = [
    "BerksonWarning",
    "ChiSquare",
    "ErrorModel",
    "Overcorrection",
    "chi_square_tail",
    "from_confusion",
    "from_known",
    "from_replicates",
    "from_validation",
    "from_variances",
    "join",
    "overcorrection",
    "warn_if_berkson",
]
