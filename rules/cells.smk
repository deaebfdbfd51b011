# REQUIRED INPUTS:  inputs/inputs.json, kernel/code.json
# OUTPUTS:          cells/<implementation>/<case>/: manifest.json and a dump for each tensor


include: "functions/cells.smk"


rule cell:
    input:
        digests=INPUT_DIGESTS,
        dumps=ancient(INPUT_DUMPS),
        kernel=kernel_code,
        callable=cell_callable,
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
    params:
        modules=cell_modules,
        spec=cell_spec,
        process=cell_process,
        libraries=cell_libraries,
        lacks=cell_lacks,
        folder=subpath(output.manifest, parent=True),
        objects=f"{PLACE}/objects",
        kernel=f"{PLACE}/kernel",
        slots=unrecorded(GPU_SLOTS),
        on_error=unrecorded(ON_ERROR),
    shell:
        "ADALN_KERNEL_DIR={params.kernel:q}"
        " python -P -m workflow_scripts.launch {params.process:q}"
        " --scratch {params.folder:q} {params.slots} workflow_scripts.run_cell"
        " --spec {params.spec:q} --on-error {params.on_error} --inputs {input.digests:q} --objects {params.objects:q}"
        " --output-dir {params.folder:q} &> {log:q}"
