# REQUIRED INPUTS:  inputs/inputs.json, kernel/code.json
# OUTPUTS:          cells/<implementation>/<case>/: manifest.json and a dump for each tensor


def cell_spec(wildcards):
    implementation = AUDIT.implementation(wildcards.implementation)
    return json.dumps(AUDIT.cell(implementation, int(wildcards.case)))


def cell_variables(wildcards):
    return json.dumps(AUDIT.variables(AUDIT.implementation(wildcards.implementation)))


def cell_mode(wildcards):
    return AUDIT.mode(AUDIT.implementation(wildcards.implementation))


def cell_interpreter(wildcards):
    """Options of launch that choose the interpreter and its packages."""
    mode = cell_mode(wildcards)
    python = ["--python", mode["python"]] if mode["python"] else []
    folders = AUDIT.path(AUDIT.implementation(wildcards.implementation))
    return python + [word for folder in folders for word in ("--path", folder)]


def cell_libraries(wildcards):
    """Versions of what the cell uses: an upgrade makes it stale."""
    mode = cell_mode(wildcards)
    if CONDA and mode["conda"]:
        return mode["conda"]  # Snakemake itself looks at the file's content
    folders = AUDIT.path(AUDIT.implementation(wildcards.implementation))
    return library_versions(mode["needs"]["libraries"], mode["python"], folders)


def cell_lacks(wildcards):
    """What this machine is known to lack: a cell that was unavailable elsewhere is made again where it is not."""
    if CLUSTER:
        return []
    needed = cell_mode(wildcards)["needs"]["instruction_sets"]
    recorded = Path(PLACE, "cells", wildcards.implementation, wildcards.case, "manifest.json")
    return lacking_here(AUDIT.config["device"], needed, recorded)


def cell_modules(wildcards):
    return modules("launch", "run_cell", *AUDIT.plugins(AUDIT.implementation(wildcards.implementation)))


def cell_callable(wildcards):
    """The file of a callable that is found on its candidate's path."""
    return callable_files(
        AUDIT.config["candidates"][AUDIT.implementation(wildcards.implementation).candidate]
    )


def cell_conda(wildcards):
    file = cell_mode(wildcards)["conda"]
    return str(SOURCE / file) if file else None


rule cell:
    input:
        digests=rules.inputs.output.digests,
        dumps=ancient(rules.inputs.output.dumps),
        kernel=kernel_code,
        callable=cell_callable,
    output:
        manifest=MANIFEST,
        timing=MANIFEST.replace("manifest.json", "timing.json"),
        dumps=[f if AUDIT.config["keep_dumps"] else temp(f) for f in dumps("{implementation}", "{case}")],
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
        variables=cell_variables,
        interpreter=cell_interpreter,
        libraries=cell_libraries,
        lacks=cell_lacks,
        folder=subpath(output.manifest, parent=True),
        objects=f"{PLACE}/objects",
        kernel=f"{PLACE}/kernel",
        gpus=unrecorded(GPUS),
        cells_per_gpu=unrecorded(CELLS_PER_GPU),
        on_error=unrecorded(ON_ERROR),
    shell:
        "ADALN_KERNEL_DIR={params.kernel:q}"
        " python -P -m workflow_scripts.launch --variables {params.variables:q} {params.interpreter:q}"
        " --scratch {params.folder:q} --gpus {params.gpus} --cells-per-gpu {params.cells_per_gpu} workflow_scripts.run_cell"
        " --spec {params.spec:q} --on-error {params.on_error} --inputs {input.digests:q} --objects {params.objects:q}"
        " --output-dir {params.folder:q} &> {log:q}"
