# REQUIRED INPUTS:  inputs/inputs.json, kernel/code.json
# OUTPUTS:          cells/<implementation>/<case>/: manifest.json and a dump for each tensor


include: "functions/cells.smk"


rule cell:
    input:
        digests=INPUT_DIGESTS,
        dumps=ancient(INPUT_DUMPS),
        code=cell_code,
    output:
        manifest=manifest(),
        timing=cell_file("timing.json"),
        dumps=[f if AUDIT.config["keep_dumps"] else temp(f) for f in dumps()],
    log:
        f"{LOGS}/cell/{{implementation}}/{{case}}.log",
    conda:
        cell_conda
    threads: AUDIT.config["cores_per_cell"]
    resources:
        gpu=1 if AUDIT.config["device"] == "cuda" else 0,
        mem_mb=grows(4000),
        runtime=grows(15),
    # Few functions: each costs Snakemake a tenth of a millisecond a cell.
    params:
        needs=cell_needs,
        spec=cell_spec,
        process=cell_process,
        folder=f"{PLACE}/cells/{{implementation}}/{{case}}",
        objects=f"{PLACE}/objects",
        kernel=f"{PLACE}/kernel",
        program=unrecorded(f"{GPU_SLOTS} workflow_scripts.run_cell --on-error {ON_ERROR}"),
    shell:
        "ADALN_KERNEL_DIR={params.kernel:q}"
        " python -P -m workflow_scripts.launch {params.process:q}"
        " --scratch {params.folder:q} {params.program} --spec {params.spec:q} --inputs {input.digests:q}"
        " --objects {params.objects:q} --output-dir {params.folder:q} &> {log:q}"
