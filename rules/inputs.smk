# REQUIRED INPUTS:  none, or config["weights"]
# OUTPUTS:          inputs/*.safetensors, inputs/inputs.json, configuration.json


rule inputs:
    input:
        modules=modules("launch", "make_inputs", "operators.adaln_projection"),
        weights=AUDIT.config["weights"]["file"] if AUDIT.config["weights"] else [],
    output:
        digests=f"{RESULTS}/inputs/inputs.json",
        dumps=expand(f"{RESULTS}/inputs/{{name}}.safetensors", name=LAYOUT.shapes(1)),
    log:
        f"{LOGS}/inputs.log",
    params:
        spec=json.dumps(
            {key: AUDIT.config[key] for key in ("operator", "seeds", "weights")} | {"cases": AUDIT.cases}
        ),
        folder=subpath(output.digests, parent=True),
    resources:
        mem_mb=4000,
        runtime=10,
    shell:
        "python -P -m workflow_scripts.launch workflow_scripts.make_inputs"
        " --spec {params.spec:q} --output-dir {params.folder:q} &> {log:q}"


rule configuration:
    input:
        modules=modules("write_configuration"),
    output:
        f"{RESULTS}/configuration.json",
    log:
        f"{LOGS}/configuration.log",
    params:
        document=json.dumps(AUDIT.document(CONFIGFILE)),
    localrule: True
    shell:
        "python -P -m workflow_scripts.write_configuration"
        " --document {params.document:q} --output {output:q} &> {log:q}"
