"""What does a folder written by TrioSim's tracer contain? Its `trace.csv` and `tensor.csv` are read as an operator trace.

    trace.csv    one operator per row: tensors read and made, `[4; 6; 8]`, microseconds, stage, whether tensors are split
    tensor.csv   one use of a tensor per row: elements, bytes of each, what it is used as, storage

The format of Li et al., TrioSim: A Lightweight Simulator for Large-Scale DNN Workloads on Multi-GPU Systems (ISCA 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator.deep.traces.csv_rows import BrokenCellError, CsvFile, Row, read_csv
from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import MOST_FLOP, OperatorRecord, TensorRecord, build_trace
from simulator.deep.traces.trace_text import broken
from simulator.units import MICROSECOND

OPERATORS_FILE, TENSORS_FILE = "trace.csv", "tensor.csv"
DEFAULT_BATCH_SIZE = 128
"""Batch size of the traces that TrioSim ships; the files do not say it."""
_TIME = "Operator_cudatimenooverlap"
"""Sum over the kernels of an operator: the column that TrioSim's own loader reads."""
_LISTS = ("Operator_input", "Operator_output")
_OPERATOR_COLUMNS = ("OperatorID", "OperatorName", *_LISTS, _TIME, "stage", "tpflag")
_TENSOR_COLUMNS = (
    "TensorID",
    "TensorShape",
    "TensorNumElement",
    "TensorEachByte",
    "TensorType",
    "TensorStorgeid",
)
_PARAMETERS = ("weight", "bias")
_STATES = ("running_mean", "running_var")
_NO_STORAGE = "0"
"""Storage of tensors that do not exist: gradients that were not requested."""


def read_triosim(folder: Path, *, batch_size: int = DEFAULT_BATCH_SIZE) -> OperatorTrace:
    """Returns the trace in a folder of TrioSim's.

    Args:
        folder: folder with `trace.csv` and `tensor.csv`.
        batch_size: samples of the step, which the files do not say.

    Raises:
        InputError: a file is missing or invalid; names file, line, field and rule.
    """
    operator_file = read_csv(folder / OPERATORS_FILE, _OPERATOR_COLUMNS)
    tensor_file = read_csv(folder / TENSORS_FILE, _TENSOR_COLUMNS)
    _refuse_disorder(operator_file)
    operators = operator_file.records(_operator)
    uses = tensor_file.records(_tensor_use)
    tensors, lines, operators = _tensors(uses, operators, tensor_file)
    return build_trace(
        folder.resolve().name,
        batch_size,
        tensors,
        operators,
        tensor_place=lambda row: tensor_file.place(lines[row]),
        operator_place=operator_file.place,
    )


def _refuse_disorder(file: CsvFile) -> None:
    """Refuses operators that are not numbered in the order in which they ran, so that none occurs twice."""
    last = 0
    for number, row in enumerate(file.rows):
        cell = row["OperatorID"].strip()
        place = f"line {file.lines[number]}.OperatorID"
        current = int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 19 else 0
        if current <= last:
            rule = f"must be a whole number above {last}, that of the operator before: is one there twice?"
            raise broken(file.path, place, cell, rule)
        last = current


def _operator(row: Row) -> OperatorRecord:
    return OperatorRecord(
        name=row["OperatorName"],
        phase=_phase(row["stage"]),
        duration_s=_number(row, _TIME) * MICROSECOND,
        can_split=row["tpflag"].strip() == "1",
        inputs=_names(row[_LISTS[0]]),
        outputs=_names(row[_LISTS[1]]),
    )


def _phase(text: str) -> Phase:
    try:
        return Phase(text.strip())
    except ValueError:
        rule = f"must be {', '.join(Phase)}"
        raise BrokenCellError("stage", text, rule) from None


def _number(row: Row, column: str) -> float:
    try:
        return float(row[column])
    except ValueError:
        raise BrokenCellError(column, row[column], "must be a number") from None


def _names(text: str) -> tuple[str, ...]:
    """Names in a list such as `[4; 6; 8]` or `['4'; '6']`."""
    cells = (cell.strip().strip("'") for cell in text.strip().strip("[]").split(";"))
    return tuple(cell for cell in cells if cell)


@dataclass(frozen=True, kw_only=True)
class _Use:
    name: str
    num_elements: float
    num_bytes: float
    first_size: float
    """Size of its first dimension: the outputs of a weight."""
    kind: str
    storage: str


def _tensor_use(row: Row) -> _Use:
    num_elements = _number(row, "TensorNumElement")
    first = row["TensorShape"].strip().strip("[]").partition(",")[0]
    return _Use(
        name=row["TensorID"].strip(),
        num_elements=num_elements,
        num_bytes=num_elements * _number(row, "TensorEachByte"),
        first_size=float(first) if first.isascii() and first.isdigit() and len(first) < 16 else 0.0,
        kind=row["TensorType"].strip().partition("=")[0],
        storage=row["TensorStorgeid"].strip(),
    )


def _with_operations(
    operators: list[OperatorRecord], uses: list[_Use], categories: dict[str, Category], first: dict[str, int]
) -> list[OperatorRecord]:
    """Counts operations of products with a weight: two for each output and each input that contributes to it."""
    counted = []
    for operator in operators:
        weights = [
            uses[first[name]] for name in operator.inputs if categories.get(name) is Category.PARAMETER
        ]
        made = [uses[first[name]].num_elements for name in operator.outputs if name in first]
        per_output = max(
            (use.num_elements / use.first_size for use in weights if use.first_size), default=0.0
        )
        num_flop = 2.0 * per_output * (made[0] if made else 0.0)
        is_product = operator.can_split and operator.phase is Phase.FORWARD and 0.0 < num_flop <= MOST_FLOP
        counted.append(operator.model_copy(update={"num_flop": num_flop}) if is_product else operator)
    return counted


def _tensors(
    uses: list[_Use], operators: list[OperatorRecord], file: CsvFile
) -> tuple[list[TensorRecord], list[int], list[OperatorRecord]]:
    """One record for each tensor, and the row of its first use, from all uses; they must agree on its size.

    The shapes of tensors also allow counting the operations of operators.
    """
    first: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    for row, use in enumerate(uses):
        known = uses[first.setdefault(use.name, row)]
        if known.num_bytes != use.num_bytes:
            rule = f"has {use.num_bytes:.15g} bytes here, {known.num_bytes:.15g} at {file.place(first[use.name])}"
            raise broken(file.path, f"line {file.lines[row]}.TensorID", use.name, rule)
        kinds.setdefault(use.name, set()).add(use.kind)
    categories = _categories(uses, operators, first, kinds)
    rows = list(first.values())

    def record(row: int) -> TensorRecord:
        use = uses[row]
        storage = None if use.storage in ("", _NO_STORAGE) else use.storage
        return TensorRecord(
            id=use.name, num_bytes=use.num_bytes, category=categories[use.name], storage=storage
        )

    places = iter(rows)
    only_first = CsvFile(
        path=file.path, rows=[file.rows[row] for row in rows], lines=[file.lines[row] for row in rows]
    )
    records = only_first.records(lambda _: record(next(places)))
    return records, rows, _with_operations(operators, uses, categories, first)


def _categories(
    uses: list[_Use], operators: list[OperatorRecord], first: dict[str, int], kinds: dict[str, set[str]]
) -> dict[str, Category]:
    """What each tensor holds, judging by its name and by the operators that read it."""
    forward = {name for record in operators if record.phase is Phase.FORWARD for name in record.inputs}
    kept = {name for record in operators if record.phase is Phase.OPTIMIZER for name in record.inputs}
    made = {name for record in operators if record.phase is Phase.BACKWARD for name in record.outputs}
    kept_storages = {uses[first[name]].storage for name in kept if name in first} - {_NO_STORAGE}
    categories = {}
    for name, row in first.items():
        if name in forward and kinds[name].intersection(_PARAMETERS):
            category = Category.PARAMETER
        elif kinds[name].intersection(_STATES):
            category = Category.STATE
        elif name in made and uses[row].storage in kept_storages:
            category = Category.GRADIENT
        else:
            category = Category.STATE if name in kept - made else Category.ACTIVATION
        categories[name] = category
    return categories
