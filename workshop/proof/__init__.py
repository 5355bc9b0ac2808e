"""What the engines' own code says of the texts that the package writes for them.

    python -m workshop.proof           # fetch the engines, run every text through them, compare
    python -m workshop.proof --write   # write docs/explain/engines-proof.md anew as well

``make engines-texts`` runs it. `environment` fetches the published packages, `texts` collects what
the package writes, `read_vllm` and `read_sglang` put it through the engines' code in an environment
of their own, and `page` writes the log and the page.

    python -m workshop.proof.servers   # serve vLLM on this processor, compare with its client

``make engines`` runs both. `serving` starts the servers and counts, `served_models` writes what
they serve, and `served` keeps what was found.
"""
