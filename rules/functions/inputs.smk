# Parameters of the rules inputs and configuration.


# Functions, since Snakemake looks for wildcards in a plain string, and a user's text may have braces.
def inputs_spec(wildcards):
    return json.dumps(
        {key: AUDIT.config[key] for key in ("operator", "seeds", "weights")} | {"cases": AUDIT.cases}
    )


def weights_digest(wildcards):
    """The file's content counts, not its time: it is too large for Snakemake's own checksums."""
    return digest_of_weights(AUDIT.config["weights"]) if AUDIT.config["weights"] else None
