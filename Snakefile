# May we reuse an existing implementation of this operator and keep every bit?
# Targets: all (report and gate), report, verify, bench, figures. What can be set: config/README.md.
from snakemake.utils import min_version

min_version("9.27.1")

# A --configfile replaces the default, even an empty one; Snakemake would merge the two.
if not config and not workflow.configfiles:

    configfile: workflow.source_path("config/config.yaml")


include: "rules/common.smk"
include: "rules/kernel.smk"
include: "rules/inputs.smk"
include: "rules/cells.smk"
include: "rules/compare.smk"
include: "rules/accuracy.smk"
include: "rules/report.smk"
include: "rules/bench.smk"


rule all:
    default_target: True
    input:
        rules.report.output,
        rules.page.output,
        rules.gate.output,
        builds_of_comments(),


onsuccess:
    tidy(PLACE)
    show_summary()


onerror:
    warn_of_full_disk()
    show_summary()
