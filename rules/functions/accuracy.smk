# Inputs of the rule accuracy and of the report.


def accuracies():
    """What the report gets to read of accuracy."""
    return expand(f"{RESULTS}/accuracy/{{case}}.json", case=AUDIT.cases) if AUDIT.config["accuracy"] else []
