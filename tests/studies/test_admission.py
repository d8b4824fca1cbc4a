"""Are children let in as a slow reading of the rules says: new designs of the space, each once, the first of them?"""

import numpy as np
import pytest

from constraints.space import pruned_space
from simulator.table import Integers
from studies.designs.admission import admitted
from studies.designs.key_index import KeyIndex
from studies.designs.knobs import Knobs
from studies.designs.repair import repair
from tests.studies.study_jobs import small_job

SPACE = pruned_space(small_job())
KNOBS = Knobs.of(SPACE)
DESIGNS = KNOBS.encode(SPACE.designs())
NUM_LAYOUT_KNOBS = KNOBS.num_layout_knobs
LAYOUTS = np.unique(DESIGNS[:, :NUM_LAYOUT_KNOBS], axis=0)


def index_of(rows: Integers) -> KeyIndex:
    index = KeyIndex()
    index.add(KNOBS.design_codes(rows).astype(np.uint64))
    return index


def drawn_rows(num_rows: int) -> Integers:
    """Rows of any indices and designs, by turns, some of them twice."""
    random = np.random.default_rng(2)
    anything = random.integers(0, KNOBS.largest + 1, (num_rows, len(KNOBS.largest)))
    some = DESIGNS[random.integers(0, len(DESIGNS), num_rows)]
    return np.stack([anything, some], axis=1).reshape(2 * num_rows, -1)


def nearest(row: Integers) -> Integers:
    """The row with the layout that a look at all layouts finds: knob by knob the nearest value, the upper one of two."""
    layouts = LAYOUTS
    for knob in range(NUM_LAYOUT_KNOBS):
        values = np.unique(layouts[:, knob])
        distances = np.abs(values - row[knob])
        value = values[distances == distances.min()].max()
        layouts = layouts[layouts[:, knob] == value]
    assert len(layouts) == 1
    return np.concatenate([layouts[0], row[NUM_LAYOUT_KNOBS:]])


def test_a_row_gets_the_nearest_layout_and_that_of_a_design_is_its_own() -> None:
    codes = KNOBS.design_digits
    for row in drawn_rows(100):
        repaired = row.copy()
        place = repair(repaired, codes.layouts, codes.worths)
        assert repaired.tolist() == nearest(row).tolist()
        assert codes.layouts[place] == codes.worths @ repaired[:NUM_LAYOUT_KNOBS]
    for design in DESIGNS[:100]:
        repaired = design.copy()
        repair(repaired, codes.layouts, codes.worths)
        assert repaired.tolist() == design.tolist()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([1, 7], [2, 6]),  # 0 and 2 are as near: the upper one; then 6, the highest of its layouts
        ([3, 3], [4, 8]),  # 2 and 4 are as near
        ([2, 1], [2, 4]),
        ([9, 0], [4, 8]),
        ([0, 1], [0, 2]),
        ([0, 9], [0, 2]),
    ],
)
def test_the_nearest_layout_is_found_knob_by_knob(wanted: list[int], found: list[int]) -> None:
    codes, worths = np.array([0, 2, 24, 26, 48]), np.array([10, 1])
    row = np.array(wanted)
    place = repair(row, codes, worths)
    assert row.tolist() == found
    assert codes[place] == found[0] * 10 + found[1]


@pytest.mark.short(3)
@pytest.mark.parametrize("is_repaired", [False, True])
@pytest.mark.parametrize("most", [0, 7, 1_000])
def test_children_are_let_in_once_where_they_are_new_designs(is_repaired: bool, most: int) -> None:
    tried = DESIGNS[::3]
    children = drawn_rows(300)
    designs = set(map(tuple, DESIGNS.tolist()))
    known = set(map(tuple, tried.tolist()))
    expected: list[tuple[int, ...]] = []
    for child in children:
        design = tuple((nearest(child) if is_repaired else child).tolist())
        if design in designs and design not in known and len(expected) < most:
            known.add(design)
            expected.append(design)
    found = admitted(children, index_of(tried).table(), KNOBS.design_digits, most, is_repaired=is_repaired)
    assert list(map(tuple, found.tolist())) == expected
    assert most == 0 or expected


def test_a_scheme_that_cannot_save_a_layout_makes_no_design() -> None:
    space = pruned_space(small_job(checkpoint_schemes=["async", "replica_ft"]))  # needs replicas
    knobs = Knobs.of(space)
    designs = knobs.encode(space.designs())
    other = designs.copy()
    other[:, knobs.num_layout_knobs] = 1 - designs[:, knobs.num_layout_knobs]
    children = np.concatenate([designs, other])
    found = admitted(children, KeyIndex().table(), knobs.design_digits, len(children), is_repaired=True)
    assert found.tolist() == designs.tolist()
    assert len(np.unique(children, axis=0)) > len(designs)
