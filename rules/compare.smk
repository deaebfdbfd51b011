# REQUIRED INPUTS:  cells/<implementation>/<case>/
# OUTPUTS:          compare/<case>/<implementation>/<baseline>.json, rows/<implementation>.json, controls/*.json
# The small manifests say whether anything changed; dumps are `ancient`, so that only their absence counts.


rule compare:
    input:
        a=manifest(),
        b=manifest("{baseline}"),
        dumps=ancient(dumps() + dumps("{baseline}")),
    output:
        f"{RESULTS}/compare/{{case}}/{{implementation}}/{{baseline}}.json",
    log:
        f"{LOGS}/compare/{{case}}/{{implementation}}/{{baseline}}.log",
    conda:
        own_conda
    resources:
        mem_mb=grows(2000),
        runtime=grows(10),
    params:
        modules=modules("compare"),
        tensors=LAYOUT.tensor_ids,
        configfile=unrecorded(CONFIGFILE),
    shell:
        "python -P -m workflow_scripts.compare --a {input.a:q} --b {input.b:q}"
        " --tensors {params.tensors:q} --configfile {params.configfile:q} --output {output:q} &> {log:q}"


rule rows:
    input:
        manifests=[manifest(case=case) for case in AUDIT.cases],
        dumps=ancient([f for case in AUDIT.cases for f in dumps(case=case, tensors=LAYOUT.row_tensors)]),
    output:
        f"{RESULTS}/rows/{{implementation}}.json",
    log:
        f"{LOGS}/rows/{{implementation}}.log",
    conda:
        own_conda
    resources:
        mem_mb=grows(2000),
        runtime=grows(10),
    params:
        modules=modules("compare_rows"),
        tensors=LAYOUT.row_tensors,
        configfile=unrecorded(CONFIGFILE),
    shell:
        "python -P -m workflow_scripts.compare_rows --manifests {input.manifests:q} --row-tensors {params.tensors:q}"
        " --configfile {params.configfile:q} --output {output:q} &> {log:q}"


rule control_flipped_bit:
    input:
        manifest=manifest(list(AUDIT.baselines)[0], AUDIT.cases[0]),
        dumps=ancient(dumps(list(AUDIT.baselines)[0], AUDIT.cases[0])),
    output:
        f"{RESULTS}/controls/flipped_bit.json",
    log:
        f"{LOGS}/control_flipped_bit.log",
    conda:
        own_conda
    resources:
        mem_mb=grows(2000),
        runtime=grows(10),
    params:
        modules=modules("control_flipped_bit"),
        tensor=LAYOUT.tensor_ids[0],
        configfile=unrecorded(CONFIGFILE),
    shell:
        "python -P -m workflow_scripts.control_flipped_bit --manifest {input.manifest:q} --tensor {params.tensor}"
        " --configfile {params.configfile:q} --output {output:q} &> {log:q}"
