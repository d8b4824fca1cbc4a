"""Which traces do the tests play? A small one of our own, written in the format of TrioSim, and those that TrioSim ships."""

from __future__ import annotations

import gzip
from pathlib import Path

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

_SHIPPED = Path(__file__).parent / "triosim"


def write_small(folder: Path, *, operators: str = OPERATORS, tensors: str = TENSORS) -> Path:
    """Writes the small trace into a folder, which it returns."""
    folder.mkdir(exist_ok=True)
    (folder / "trace.csv").write_text(operators, encoding="utf-8")
    (folder / "tensor.csv").write_text(tensors, encoding="utf-8")
    return folder


def unpack(name: str, folder: Path) -> Path:
    """Unpacks one of TrioSim's traces (`vgg13`, `resnet50`); returns its folder."""
    target = folder / name
    target.mkdir()
    for file in ("trace.csv", "tensor.csv"):
        (target / file).write_bytes(gzip.decompress((_SHIPPED / name / f"{file}.gz").read_bytes()))
    return target


def profile_and_graph() -> tuple[Path, Path]:
    """The profile and the execution trace from which TrioSim's tracer makes a trace of VGG-13 with a batch of 512."""
    folder = _SHIPPED / "profile"
    return folder / "profiler_vgg13.json.gz", folder / "graph_vgg13.json.gz"
