# REQUIRED INPUTS:  none, or config["weights"]
# OUTPUTS:          inputs/*.safetensors, inputs/inputs.json, configuration.json


include: "functions/inputs.smk"


rule inputs:
    input:
        weights=ancient(local(AUDIT.config["weights"]["file"])) if AUDIT.config["weights"] else [],
    output:
        digests=INPUT_DIGESTS,
        dumps=INPUT_DUMPS,
    log:
        f"{LOGS}/inputs.log",
    conda:
        own_conda
    resources:
        mem_mb=grows(4000),
        runtime=grows(10),
    params:
        modules=modules("launch", "make_inputs", "operators.adaln_projection"),
        spec=inputs_spec,
        weights=weights_digest,
        folder=subpath(output.digests, parent=True),
    shell:
        "python -P -m workflow_scripts.launch workflow_scripts.make_inputs"
        " --spec {params.spec:q} --output-dir {params.folder:q} &> {log:q}"


rule configuration:
    output:
        f"{RESULTS}/configuration.json",
    log:
        f"{LOGS}/configuration.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("write_configuration"),
        document=lambda wildcards: json.dumps(AUDIT.document(CONFIGFILE)),
    shell:
        "python -P -m workflow_scripts.write_configuration"
        " --document {params.document:q} --output {output:q} &> {log:q}"
