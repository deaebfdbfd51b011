# REQUIRED INPUTS:  inputs/, cells/<implementation>/<case>/manifest.json, report/report.full.json
# OUTPUTS:          latency/<implementation>/<case>.json, report/: latency.json, latency.md, bench.html, figures/
# Times differ from run to run, so none of this is part of `all` and nothing of `all` depends on it.


include: "functions/bench.smk"


rule latency:
    # Alone on its GPU; on a CPU alone on the machine.
    input:
        digests=INPUT_DIGESTS,
        inputs=ancient(INPUT_DUMPS),
        manifest=manifest(),
        code=cell_code,
    output:
        f"{RESULTS}/latency/{{implementation}}/{{case}}.json",
    log:
        f"{LOGS}/latency/{{implementation}}/{{case}}.log",
    conda:
        cell_conda
    threads: latency_threads()
    resources:
        gpu=whole_gpu(),
        mem_mb=grows(4000),
        runtime=grows(15),
    params:
        modules=latency_modules,
        spec=cell_spec,
        process=cell_process,
        settings=json.dumps(AUDIT.config["latency"]),
        kernel=f"{PLACE}/kernel",
        slots=unrecorded(GPU_SLOTS),
        configfile=unrecorded(CONFIGFILE),
    shell:
        "ADALN_KERNEL_DIR={params.kernel:q}"
        " python -P -m workflow_scripts.launch {params.process:q}"
        " --scratch {output:q} {params.slots} --whole-gpu workflow_scripts.latency"
        " --spec {params.spec:q} --settings {params.settings:q} --manifest {input.manifest:q}"
        " --inputs {input.digests:q} --configfile {params.configfile:q} --output {output:q} &> {log:q}"


rule latency_report:
    input:
        configuration=rules.configuration.output,
        measurements=expand(rules.latency.output, implementation=AUDIT.implementations, case=AUDIT.cases),
    output:
        json=f"{RESULTS}/report/latency.json",
        markdown=f"{RESULTS}/report/latency.md",
    log:
        f"{LOGS}/latency_report.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("latency_report"),
    shell:
        "python -P -m workflow_scripts.latency_report --audit {input.configuration:q}"
        " --measurements {input.measurements:q} --json {output.json:q} --markdown {output.markdown:q} &> {log:q}"


rule bench_page:
    input:
        full=rules.report.output.full,
        latency=rules.latency_report.output.json,
        templates=PAGE_TEMPLATES,
    output:
        report(
            f"{RESULTS}/report/bench.html",
            caption="report/bench.rst",
            category="Answer",
            labels={"shows": "the whole report, with latency"},
        ),
    log:
        f"{LOGS}/bench_page.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("make_page"),
    shell:
        "python -P -m workflow_scripts.make_page --report {input.full:q} --latency {input.latency:q}"
        " --output {output:q} &> {log:q}"


rule figure_of_differing_share:
    input:
        full=rules.report.output.full,
    output:
        svg=report(
            f"{RESULTS}/report/figures/differing_share.svg",
            caption="report/differing_share.rst",
            category="Figures",
            labels={"shows": "share of differing elements"},
        ),
        png=f"{RESULTS}/report/figures/differing_share.png",
    log:
        f"{LOGS}/figure_of_differing_share.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("figures"),
    shell:
        "python -P -m workflow_scripts.figures differing_share --input {input.full:q} --outputs {output:q} &> {log:q}"


rule figure_of_latency:
    input:
        latency=rules.latency_report.output.json,
    output:
        svg=report(
            f"{RESULTS}/report/figures/latency.svg",
            caption="report/latency.rst",
            category="Figures",
            labels={"shows": "latency"},
        ),
        png=f"{RESULTS}/report/figures/latency.png",
    log:
        f"{LOGS}/figure_of_latency.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("figures"),
    shell:
        "python -P -m workflow_scripts.figures latency --input {input.latency:q} --outputs {output:q} &> {log:q}"


rule figures:
    input:
        rules.figure_of_differing_share.output,


rule bench:
    input:
        rules.latency_report.output,
        rules.bench_page.output,
        rules.figures.input,
        rules.figure_of_latency.output,
