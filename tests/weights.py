"""The weights of a module, to compare with those of another."""


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(bool((a[name] == b[name]).all()) for name in a)
