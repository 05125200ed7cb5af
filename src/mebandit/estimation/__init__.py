"""From running sums to estimates: θ by each method, its standard errors, best linear predictors."""
