"""Small audits in folders of their own, runs of Snakemake, and the jobs that a run did."""
