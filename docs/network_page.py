"""What does the page on network files say? Its text; the tables of fields are written from the types."""

from __future__ import annotations

from pathlib import Path

NETWORK_PAGE = Path(__file__).with_name("network-file.md")
NETWORK_INTRODUCTION = """\
# The network file

A network file says what joins accelerators at the [deep depth](deep.md): one of the usual networks by its sizes and cables, or
any other one cable by cable. It is YAML, JSON or TOML, as job files are. All problems of its fields are reported at once, each
with its path; ends that do not exist are looked for when the fields are right: first those of cables (ten are named), then
those of slow links. `step.json` stands for the [trace of a step](how-to/traces.md#a-trace), and `astra` for a folder of
[execution traces](how-to/traces.md#for-astra-sim):

```sh
capplan trace simulate step.json --gpus 64 --network examples/networks/torus.yaml
capplan trace play astra --network examples/networks/rails.yaml
capplan simulate examples/llama-3.1-70b.yaml --plan accelerator=h100-sxm5-80gb,tp=8,dp=8 --depth deep \\
    --set workload.global_batch_tokens=131072 --network examples/networks/dragonfly.yaml
```

```yaml
network:
  kind: fat-tree
  num_gpus: 64
  bandwidth_bytes_per_s: 50e9
  latency_s: 1e-6
  gpus_per_leaf: 8
  num_spines: 4
slow_links: {"gpu:3": 0.5, "leaf:0-spine:1": 0.25}
```

[examples/networks](../examples/networks/torus.yaml) has one file of each kind, `capplan schema network` prints the JSON Schema.

- A network may have more accelerators than a step uses: it uses the first ones.
- Flows take the way that costs least, by latency and the time of 1 MiB. Among ways of equal cost each switch takes one by a
  hash of the flow's ends and `ecmp_salt` (ECMP), so that flows can collide; another salt is another draw.
- Ways are those of the network with nothing slow: the hash is static, as in most switches, which do not know that a cable has
  errors or a port came up at half its rate. So what falls on a slow link is slow, though others be idle. To see what routing
  around it would give, write the network cable by cable, with the slow one at the bandwidth that it has left, or without it.
- Links are named by their ends: `gpu:3-switch:0` both ways, `gpu:3>switch:0` in one direction. One end alone is what leads
  from it further out, away from accelerators (`card:3`, `leaf:0`), or all its cables where nothing does; `scale-up:3` is the
  cable of accelerator 3 to the switch of its node. `--slow-link LINK=SHARE` takes the same names.
- Shares of names that overlap multiply: `gpu:0` and `gpu:0>switch:0`, or the file's and the option's for one link. The same
  link by another name (`gpu:01` beside `gpu:1`) is refused. The answer of `simulate --depth deep` says what each has left by
  file and option together, and by how much all that is slow makes the step longer.
- Of `nodes` with fewer cards than accelerators, accelerator i of a node uses card i x cards / accelerators, rounded down. With
  more, there must be a multiple: each accelerator has its share of them, and libraries spread what it sends evenly over these,
  so that they are one link of their bandwidths together. `card:3` is then all cards of accelerator 3; one of them at half
  holds the others up, and is `card:3=0.5`.
- Two cables between the same ends are two links: each flow takes one of them by the hash. Alike, they are not one of twice the
  bandwidth; with different bandwidths or latencies all flows take the one that costs less.
- Small collectives reach less of a bandwidth than large ones; how much less is what `ramp_s` says, in seconds: one that keeps
  a cable busy for x seconds takes 2 sqrt(ramp x) longer, so that it reaches half of the bandwidth where x is four times the
  ramp. 3e-6 fits NVLink 4 ([others, and what it counts for](deep.md#small-collectives)). Left out it is 0, and small
  collectives are too fast.
- The hot links of an answer, and the rows of a timeline, tell what places are called.

From Python: `planner.deep.network_file.load_network("network.yaml").build()` is a `simulator.deep.networks.topology.Topology`.

This page is generated from the types: `python -m docs.generate`.
"""
