# REQUIRED INPUTS:  all manifests, compares, rows and controls
# OUTPUTS:          report/: report.json, report.full.json, summary.tsv, summary.txt, report.md, report.html, gate.json

PAGE_TEMPLATES = source_files(sorted(Path(SOURCE, "workflow_scripts/report/templates").iterdir()))


rule report:
    input:
        configuration=f"{RESULTS}/configuration.json",
        manifests=[manifest(key, case) for key in AUDIT.implementations for case in AUDIT.cases],
        compares=[f"{RESULTS}/compare/{case}/{key}/{baseline}.json" for case, key, baseline in pairs()],
        rows=expand(f"{RESULTS}/rows/{{implementation}}.json", implementation=AUDIT.implementations),
        accuracy=accuracies(),
        flipped_bit=f"{RESULTS}/controls/flipped_bit.json",
        inert=manifest(AUDIT.control.key, AUDIT.cases[0]),
    output:
        json=f"{RESULTS}/report/report.json",
        full=f"{RESULTS}/report/report.full.json",
        table=report(
            f"{RESULTS}/report/summary.tsv",
            caption="report/summary.rst",
            category="Answer",
            labels={"shows": "every comparison"},
        ),
        summary=f"{RESULTS}/report/summary.txt",
        markdown=f"{RESULTS}/report/report.md",
    log:
        f"{LOGS}/report.log",
    conda:
        own_conda
    resources:
        mem_mb=grows(2000),
        runtime=grows(10),
    params:
        modules=modules("make_report"),
        folder=subpath(output.json, parent=True),
    shell:
        "python -P -m workflow_scripts.make_report --audit {input.configuration:q} --manifests {input.manifests:q}"
        " --compares {input.compares:q} --rows {input.rows:q} --accuracy {input.accuracy:q} --controls {input.flipped_bit:q} {input.inert:q}"
        " --output-dir {params.folder:q} > {output.summary:q} 2> {log:q}"


rule page:
    input:
        full=rules.report.output.full,
        templates=PAGE_TEMPLATES,
    output:
        report(
            f"{RESULTS}/report/report.html",
            caption="report/page.rst",
            category="Answer",
            labels={"shows": "the whole report"},
        ),
    log:
        f"{LOGS}/page.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("make_page"),
    shell:
        "python -P -m workflow_scripts.make_page --report {input.full:q} --output {output:q} &> {log:q}"


rule gate:
    input:
        full=rules.report.output.full,
    output:
        f"{RESULTS}/report/gate.json",
    log:
        f"{LOGS}/gate.log",
    localrule: True
    conda:
        own_conda
    params:
        modules=modules("gate"),
    shell:
        "python -P -m workflow_scripts.gate --report {input.full:q} --output {output:q} &> {log:q}"


rule verify:
    log:
        f"{LOGS}/verify.log",
    conda:
        own_conda
    params:
        modules=modules("verify"),
        manifests=lambda wildcards: sorted(map(str, Path(PLACE, "cells").glob("*/*/manifest.json"))),
        objects=f"{PLACE}/objects",
        configfile=unrecorded(CONFIGFILE),
    shell:
        "python -P -m workflow_scripts.verify --manifests {params.manifests:q} --objects {params.objects:q}"
        " --configfile {params.configfile:q} 2>&1 | tee {log:q}"
