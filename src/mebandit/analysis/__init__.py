"""What comes after the log: estimates, the value of other policies, diagnostics, planning, and the paper's bounds."""
