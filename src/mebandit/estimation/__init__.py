"""From running sums to estimates: θ by each method, its standard errors, best linear predictors.

In the order of the computation:

    clusters             the numbers of participants or clusters
    moments              running sums of a learner, checked rounds, crossproducts of a log
    correction           what is known of the prediction error, applied to rounds and to crossproducts
    best_linear          the best linear predictor x̂ of a context, and what it is computed with
    methods              the methods by name, with their formulas
    equations            crossproducts -> the running sums of each method's estimating equation
    solving              running sums -> θ, by arm
    precision            what rounding does, and what is refused because of it
    nuisance             how θ of regression calibration moves with the mean and covariance that x̂ is computed with
    scores               the scores ψ of the rounds and the sandwich covariance
    solution             all methods solved from one log
    simultaneous         the level of each of several intervals that hold together
    result               `Estimate`, the value that users hold
    error_model_variance what the uncertainty of an estimated error model adds to the covariances
    estimate             the public `estimate`
    method_of_moments    the public `estimate_moments`
"""
