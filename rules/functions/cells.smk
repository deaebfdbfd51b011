# What a cell depends on, from its wildcards.


def cell_spec(wildcards):
    implementation = AUDIT.implementation(wildcards.implementation)
    return json.dumps(AUDIT.cell(implementation, int(wildcards.case)))


def cell_mode(wildcards):
    return AUDIT.mode(AUDIT.implementation(wildcards.implementation))


def cell_process(wildcards):
    """Options of launch: variables, interpreter and packages of the cell's process."""
    implementation = AUDIT.implementation(wildcards.implementation)
    interpreter = cell_mode(wildcards)["python"]
    options = ["--variables", json.dumps(AUDIT.variables(implementation))]
    options += ["--python", interpreter] if interpreter else []
    return options + [word for folder in AUDIT.path(implementation) for word in ("--path", folder)]


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
