# REQUIRED INPUTS:  inputs/, cells/<implementation>/<case>/
# OUTPUTS:          accuracy/<case>.json


include: "functions/accuracy.smk"


rule accuracy:
    # One job a case: the float64 reference is computed once, part by part, and never kept.
    input:
        digests=INPUT_DIGESTS,
        inputs=ancient(INPUT_DUMPS),
        manifests=[manifest(key) for key in AUDIT.implementations],
        dumps=ancient([f for key in AUDIT.implementations for f in dumps(key)]),
    output:
        f"{RESULTS}/accuracy/{{case}}.json",
    log:
        f"{LOGS}/accuracy/{{case}}.log",
    conda:
        own_conda
    threads: AUDIT.config["threads"]
    resources:
        gpu=1 if AUDIT.config["device"] == "cuda" else 0,
        mem_mb=grows(8000),
        runtime=grows(20),
    params:
        modules=modules("launch", "accuracy", "operators.adaln_layout", "operators.adaln_projection"),
        operator=json.dumps(AUDIT.config["operator"]),
        device=AUDIT.config["device"],
        slots=unrecorded(GPU_SLOTS),
        configfile=unrecorded(CONFIGFILE),
    shell:
        'python -P -m workflow_scripts.launch --variables \'{{"OMP_NUM_THREADS": "{threads}"}}\''
        " {params.slots} workflow_scripts.accuracy --operator {params.operator:q}"
        " --device {params.device} --inputs {input.digests:q} --case {wildcards.case} --manifests {input.manifests:q}"
        " --configfile {params.configfile:q} --output {output:q} &> {log:q}"
