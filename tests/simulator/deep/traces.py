"""Which traces do the tests replay? A small hand-made one, and full-size measured ones, which can be written as TrioSim's."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import OperatorRecord, TensorRecord, build_trace
from simulator.deep.traces.trace_file import read_trace_file

OPERATORS = """\
OperatorID,OperatorName,Operator_input,Operator_output,Operator_cudatime,Operator_cudatimenooverlap,InputSize,OutputSize,gpuid,stage,tpflag
1,aten::linear,[x; w1; b1],[h],1010,1000,[64; 128; 8],[128],0,forward,1
2,aten::relu_,[h],[h],100,100,[128],[128],0,forward,0
4,aten::linear,[h; w2; b2],[y],2000,2000,[128; 256; 16],[256],0,forward,1
5,aten::mse_loss,[y; t],[loss],50,50,[256; 256],[1],0,forward,0
6,MseLossBackward0,[loss; y; t],[dy],50,50,[1; 256; 256],[256],0,backward,0
7,AddmmBackward0,[dy; h; w2t],[dh; dw2; db2],4000,4000,[256; 128; 256],[128; 256; 16],0,backward,1
8,ReluBackward0,[dh; h],[da],100,100,[128; 128],[128],0,backward,0
9,AddmmBackward0,[da; x; w1t],[none; dw1; db1],1000,1000,[128; 64; 128],[0; 128; 8],0,backward,1
12,aten::_foreach_addcdiv_,[w1; b1; w2; b2; m; v; dw1; db1; dw2; db2],[],500,500,[],[],0,optimizer,0
"""
"""Two linear layers with a batch of 16: 3.15 ms forward, 5.15 ms backward, 0.5 ms optimizer."""
TENSORS = """\
Index,TensorID,TensorShape,TensorNumElement,TensorEachByte,TensorType,TensorStorgeid,gpuid
0,x,"[16, 4]",64,4,input,s1,0
1,w1,"[8, 16]",128,4,weight,s2,0
2,w1t,"[16, 8]",128,4,mat2,s2,0
3,b1,[8],8,4,bias=None,s3,0
4,h,"[16, 8]",128,4,output,s4,0
5,h,"[16, 8]",128,4,input,s4,0
6,w2,"[16, 16]",256,4,weight,s5,0
7,w2t,"[16, 16]",256,4,mat2,s5,0
8,b2,[16],16,4,bias,s6,0
9,y,"[16, 16]",256,4,output,s7,0
10,t,"[16, 16]",256,4,target,s8,0
11,loss,[],1,4,output,s9,0
12,dy,"[16, 16]",256,4,grad_output,s10,0
13,dh,"[16, 8]",128,4,grad_output,s11,0
14,dw2,"[16, 16]",256,4,output,s12,0
15,db2,[16],16,4,output,s13,0
16,da,"[16, 8]",128,4,grad_output,s14,0
17,none,[0],0,4,output,0,0
18,dw1,"[8, 16]",128,4,output,s15,0
19,db1,[8],8,4,output,s16,0
20,m,[408],408,4,input,s17,0
21,v,[408],408,4,input,s18,0
"""

_MEASURED = Path(__file__).parents[2] / "data" / "traces"
_BYTES_OF_A_NUMBER = 4.0


def measured(name: str) -> OperatorTrace:
    """Returns a measured step: `vgg13`, `resnet50` (batch 128), or `vgg13-batch512`; the files name their source."""
    return read_trace_file(_MEASURED / f"{name}.json")


def write_small(folder: Path, *, operators: str = OPERATORS, tensors: str = TENSORS) -> Path:
    """Writes the small trace into a folder, which it returns."""
    folder.mkdir(exist_ok=True)
    (folder / "trace.csv").write_text(operators, encoding="utf-8")
    (folder / "tensor.csv").write_text(tensors, encoding="utf-8")
    return folder


def even(num_layers: int, forward_s: float, backward_s: float) -> OperatorTrace:
    """Layers of equal time and size, without an optimizer."""
    tensors = [TensorRecord(id="a-1", num_bytes=8.0)]
    forward, backward = [], []
    for layer in range(num_layers):
        tensors.append(TensorRecord(id=f"w{layer}", num_bytes=100.0, category=Category.PARAMETER))
        tensors += [TensorRecord(id=f"{kind}{layer}", num_bytes=8.0) for kind in ("a", "g")]
        inputs = (f"a{layer - 1}", f"w{layer}")
        forward.append(
            OperatorRecord(
                name="linear",
                phase=Phase.FORWARD,
                duration_s=forward_s,
                inputs=inputs,
                outputs=(f"a{layer}",),
                can_split=True,
            )
        )
        backward.append(
            OperatorRecord(
                name="back",
                phase=Phase.BACKWARD,
                duration_s=backward_s,
                inputs=inputs,
                outputs=(f"g{layer}",),
                can_split=True,
            )
        )
    return build_trace("even", 4, tensors, [*forward, *reversed(backward)])


def write_as_triosim(trace: OperatorTrace, folder: Path) -> Path:
    """Writes any trace as TrioSim's tracer would into a folder, which it returns."""
    folder.mkdir(exist_ok=True)
    operators, tensors = (text.splitlines()[0].split(",") for text in (OPERATORS, TENSORS))
    _write_rows(folder / "trace.csv", operators, _operator_rows(trace))
    _write_rows(folder / "tensor.csv", tensors, _tensor_rows(trace))
    return folder


def _write_rows(path: Path, heading: list[str], rows: list[list[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([heading, *rows])


def _operator_rows(trace: OperatorTrace) -> list[list[object]]:
    return [
        [
            row + 1,
            name,
            *_listed(trace, row, trace.tensors.names),
            *[f"{trace.duration_s[row] * 1e6:.9g}"] * 2,
            *_listed(trace, row, [f"{size:.0f}" for size in trace.tensors.num_bytes]),
            0,
            Phase.from_code(int(trace.phase[row])).value,
            int(trace.can_split[row]),
        ]
        for row, name in enumerate(trace.names)
    ]


def _listed(trace: OperatorTrace, row: int, texts: Sequence[str]) -> list[str]:
    """The tensors that an operator reads or writes: `[4; 6; 8]`."""
    lists = (part.of(row).tolist() for part in (trace.inputs, trace.outputs))
    return [f"[{'; '.join(texts[number] for number in part)}]" for part in lists]


def _tensor_rows(trace: OperatorTrace) -> list[list[object]]:
    """A row for each tensor, and another one for each that an operator creates."""
    tensors, shapes = trace.tensors, _shapes_of_weights(trace)
    kinds = {Category.PARAMETER: "weight=None", Category.STATE: "running_mean"}
    rows: list[list[object]] = []
    for number in [*range(len(tensors.names)), *np.unique(trace.outputs.values).tolist()]:
        num_bytes, storage = tensors.num_bytes[number], f"s{tensors.storage[number]}"
        each = _BYTES_OF_A_NUMBER if num_bytes % _BYTES_OF_A_NUMBER == 0 else 1.0
        size = f"{num_bytes / each:.0f}"
        kind = kinds.get(Category.from_code(int(tensors.category[number])), "output")
        shape = shapes.get(number, f"[{size}]")
        rows.append([len(rows), tensors.names[number], shape, size, f"{each:.0f}", kind, storage, 0])
    return rows


def _shapes_of_weights(trace: OperatorTrace) -> dict[int, str]:
    """Of weights of what is split: the outputs, and the inputs of which each is made, as the operations say."""
    shapes = {}
    for row in np.flatnonzero(trace.can_split & trace.is_in(Phase.FORWARD)).tolist():
        num_made = trace.tensors.num_bytes[trace.outputs.of(row)[0]] / _BYTES_OF_A_NUMBER
        num_inputs = round(trace.num_flop[row] / 2.0 / num_made)
        parameters = np.intersect1d(trace.inputs.of(row), trace.parameters)
        weight = int(parameters[np.argmax(trace.tensors.num_bytes[parameters])])
        num_outputs = round(trace.tensors.num_bytes[weight] / _BYTES_OF_A_NUMBER / num_inputs)
        shapes[weight] = f"[{num_outputs}, {num_inputs}]"
    return shapes
