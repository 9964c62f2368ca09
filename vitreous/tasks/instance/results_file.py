def measure_results(path, source, split):
    raise NotImplementedError
