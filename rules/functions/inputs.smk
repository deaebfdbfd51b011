# Parameters of the rule inputs and of those that read what it makes.


# Functions, since Snakemake looks for wildcards in a plain string, and a user's text may have braces.
def inputs_spec(wildcards):
    spec = {key: AUDIT.config[key] for key in ("operator", "seeds", "weights")}
    return json.dumps(spec | {"rows": max(AUDIT.cases)})


def weights_digest(wildcards):
    """The file's content counts, not its time: it is too large for Snakemake's own checksums."""
    return digest_of_weights(AUDIT.config["weights"]) if AUDIT.config["weights"] else None


def inputs_recipe(wildcards):
    """All that decides the inputs' values, for the jobs that read them. The files themselves are `ancient` there, so
    that another case, for which they are made again as they were, makes only its own jobs."""
    return [inputs_spec(wildcards), weights_digest(wildcards), inputs_modules()]


def inputs_modules():
    return modules("launch", "make_inputs", "operators.adaln_projection")
