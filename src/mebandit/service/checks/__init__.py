"""The checks: does an experiment run as designed, and is what it assumes still right?"""
