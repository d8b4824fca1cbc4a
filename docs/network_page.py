"""What is on the page on network files? Its text; the tables of fields are generated from the types."""

from __future__ import annotations

from pathlib import Path

NETWORK_PAGE = Path(__file__).with_name("network-file.md")
NETWORK_INTRODUCTION = """\
# The network file

Write a network file to play a step at the [deep depth](deep.md) on the network that you have or plan. It describes what joins
accelerators: one of the usual networks by its sizes and cables, or any other one cable by cable. Like job files, it is YAML,
JSON or TOML. All problems of its fields are reported at once, each with its path. Once the fields are right, capplan looks
for ends that do not exist: first those of cables (it names ten), then those of slow links.

In these examples, `step.json` stands for the [trace of a step](how-to/traces.md#a-trace), and `astra` for a folder of
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

[examples/networks](../examples/networks/torus.yaml) has one file of each kind. `capplan schema network` prints the JSON
Schema.

- **Size.** A network may have more accelerators than a step uses; the step uses the first ones.
- **Routing.** Flows take the path with the least cost, by latency and the time of 1 MiB. Among paths of equal cost, each
  switch chooses by a hash of the flow's ends and `ecmp_salt` (ECMP), so flows can collide. Another salt is another draw.
- **Slow links do not change the routing.** Paths are those of the network with nothing slow: the hash is static, as in most
  switches, which do not know that a cable has errors or that a port came up at half its rate. Flows that hash to a slow link
  are slow, even if others are idle. To see what routing around it would give, write the network cable by cable, with the slow
  cable at its remaining bandwidth, or without it.
- **Names of links.** Links are named by their ends: `gpu:3-switch:0` in both directions, `gpu:3>switch:0` in one. One end
  alone stands for the links that lead from it further out, away from accelerators (`card:3`, `leaf:0`), or for all its cables
  if there are none. `scale-up:3` is the cable of accelerator 3 to the switch of its node. `--slow-link LINK=SHARE` takes the
  same names.
- **Overlapping names multiply**: `gpu:0` and `gpu:0>switch:0`, or the file's and the option's shares for one link. The same
  link under another spelling (`gpu:01` beside `gpu:1`) is refused. The answer of `simulate --depth deep` says which share
  each link has left, file and option together, and how much longer the step is because of all slow links and accelerators.
- **Network cards.** If `nodes` have fewer cards than accelerators, accelerator i of a node uses card i x cards /
  accelerators, rounded down. If they have more, their number must be a multiple. Each accelerator then has its share of the
  cards, and libraries spread its traffic evenly over them, so they are one link with the sum of their bandwidths. `card:3` is
  then all cards of accelerator 3. A single card at half its bandwidth holds the others up; write it as `card:3=0.5`.
- **Parallel cables.** Two cables between the same ends are two links, and each flow takes one of them by the hash. Two equal
  cables are therefore not one of twice the bandwidth. If their bandwidths or latencies differ, all flows take the one with
  the lower cost.
- **Small collectives** reach a smaller share of a bandwidth than large ones; `ramp_s`, in seconds, says
  [how much smaller](deep.md#small-collectives). 3e-6 fits NVLink 4. The default is 0, with which small collectives are too
  fast.
- **Names of places** appear in the hot links of an answer and in the rows of a timeline.

From Python, `planner.deep.network_file.load_network("network.yaml").build()` is a
`simulator.deep.networks.topology.Topology`.

This page is generated from the types: `python -m docs.generate`.
"""
