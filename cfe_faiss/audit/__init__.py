"""What counterfactual evidence says about a model."""
