"""Why is there no layout, and what is the nearest one? The degrees of parallelism as a CP-SAT model.

Each rule of `constraints.layout` that degrees can break is guarded by an assumption literal. So CP-SAT names rules that
suffice for a contradiction, and the smallest change of accelerators or batch that permits a layout. The model states the
rules as arithmetic, not as a list of layouts; tests compare its solutions with the layouts of `constraints.lattice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from constraints.divisors import divisors
from constraints.exchanges import can_exchange
from constraints.feasibility import exact_solver, minimal_conflict, sufficient_conflict
from constraints.lattice import contexts, experts, listed_cuts, pipelines
from constraints.layout import recomputes_encoder, shared_vision, split_heads
from constraints.reach import cuts, most_accelerators, most_sequences, tensors
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.muon import LAST_ZERO_STAGE
from simulator.domain.offer import Offer
from simulator.domain.plan import SPLIT_BACKWARD, TO_AND_FRO, Recompute, Schedule
from simulator.layout.casts import computes_in
from simulator.layout.expert_ranks import expert_parts

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

DEGREE_RULE_NAMES = (
    "gpu_range",
    "whole_nodes",
    "attention_heads",
    "feed_forward",
    "layers",
    "interleaving",
    "interleaved_groups",
    "schedule",
    "weight_gradients",
    "batch",
    "sequence",
    "context_exchange",
    "experts",
    "number_format",
    "shard_groups",
    "whole_matrices",
)
"""Rules of layouts on degrees and on the schedule, in the order in which reports name them. Rules of checkpoint schemes are
left out because they choose no degrees. Of ZeRO stage, number format and shard groups, some listed choice must keep a rule."""
FURTHEST = 2 * 10**9
"""No number of accelerators or sequences that is searched, and no difference of two, is larger."""


@dataclass(frozen=True, kw_only=True)
class NearestLayout:
    """Which single change would permit a layout."""

    num_gpus: int | None
    """Number of accelerators nearest to the ranges on offer; `None` where no other number helps."""
    global_batch_size: int | None
    """Sequences per step nearest to the job's; `None` where no other batch helps."""


def conflicting_rules(job: Job) -> tuple[str, ...]:
    """Returns rules that no choice of degrees keeps together; empty where there is a layout.

    The conflict is minimal: if any one of its rules is dropped, some choice of degrees keeps the rest.
    """
    if not any(listed_cuts(job)):
        return ("interleaving",)  # one stage, and several chunks on it, is all that is listed
    # What no number of accelerators resolves is told first: more of them would not help.
    of_any_size = tuple(name for name in DEGREE_RULE_NAMES if name != "gpu_range")
    tried = (
        minimal_conflict(names, lambda assumed: _conflict(job, assumed))
        for names in (of_any_size, DEGREE_RULE_NAMES)
    )
    return next(filter(None, tried), ())


def nearest_layout(job: Job) -> NearestLayout:
    """Returns the smallest change of accelerators alone, and of the batch alone, that permits a layout."""
    return NearestLayout(
        num_gpus=_nearest(job, "gpu_range"),
        global_batch_size=_nearest(job, "batch"),
    )


def all_degrees(job: Job) -> set[tuple[int, ...]]:
    """Returns every choice (offer, t, p, v, c, e, D, b) that keeps all rules of degrees; for small jobs."""
    from ortools.sat.python import cp_model

    model = _Model.of(job, DEGREE_RULE_NAMES)
    found: set[tuple[int, ...]] = set()

    class _Collect(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            found.add(tuple(self.value(variable) for variable in model.degrees))

    solver = exact_solver()
    solver.parameters.enumerate_all_solutions = True
    solver.solve(model.model, _Collect())
    return found


def _conflict(job: Job, assumed: tuple[str, ...]) -> tuple[str, ...]:
    """The assumed rules that suffice for a contradiction; empty if there is none."""
    model = _Model.of(job, ())
    return sufficient_conflict(model.model, model.keeps, assumed)


def _nearest(job: Job, rule: str) -> int | None:
    """Accelerators (`gpu_range`) or sequences (`batch`) nearest to what the job names, with all other rules kept."""
    from ortools.sat.python import cp_model

    model = _Model.of(job, tuple(name for name in DEGREE_RULE_NAMES if name != rule))
    model.minimise_distance(rule)
    solver = exact_solver()
    if solver.solve(model.model) != cp_model.OPTIMAL:
        return None
    return solver.value(model.num_gpus if rule == "gpu_range" else model.batch)


@dataclass(frozen=True, kw_only=True)
class _Model:
    """Variables of one choice of degrees, and a literal for every rule."""

    job: Job
    model: cp_model.CpModel
    keeps: dict[str, cp_model.IntVar]
    offer: cp_model.IntVar
    tensor: cp_model.IntVar
    pipeline: cp_model.IntVar
    virtual: cp_model.IntVar
    context: cp_model.IntVar
    expert: cp_model.IntVar
    replicas: cp_model.IntVar
    micro_batch: cp_model.IntVar
    num_micro: cp_model.IntVar
    """Micro-batches per replica and step."""
    num_gpus: cp_model.IntVar
    batch: cp_model.IntVar
    """Sequences of a step, D b m."""

    @property
    def degrees(self) -> tuple[cp_model.IntVar, ...]:
        """The degrees of a layout, as `all_degrees` returns them."""
        head = (self.offer, self.tensor, self.pipeline, self.virtual)
        return (*head, self.context, self.expert, self.replicas, self.micro_batch)

    @classmethod
    def of(cls, job: Job, kept: Iterable[str]) -> _Model:
        """Returns the model of a job in which some rules must be kept and the others may be broken."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        most_gpus, most_batch = most_accelerators(job), most_sequences(job)

        def one_of(values: Iterable[int], name: str) -> cp_model.IntVar:
            return model.new_int_var_from_domain(cp_model.Domain.from_values(sorted(values)), name)

        built = cls(
            job=job,
            model=model,
            keeps={name: model.new_bool_var(f"keeps {name}") for name in DEGREE_RULE_NAMES},
            offer=model.new_int_var(0, len(job.offers) - 1, "offer"),
            tensor=one_of(tensors(job), "t"),
            pipeline=one_of({p for p, _ in cuts(job)}, "p"),
            virtual=one_of({v for _, v in cuts(job)}, "v"),
            context=one_of(contexts(job), "c"),
            expert=one_of(experts(job), "e"),
            replicas=model.new_int_var(1, most_gpus, "D"),
            micro_batch=one_of(job.search.micro_batch_sizes, "b"),
            num_micro=model.new_int_var(1, most_batch, "m"),
            num_gpus=model.new_int_var(1, most_gpus, "N"),
            batch=model.new_int_var(1, most_batch, "B"),
        )
        split = (built.tensor, built.pipeline, built.context, built.replicas)
        model.add_multiplication_equality(built.num_gpus, split)
        model.add_multiplication_equality(built.batch, (built.replicas, built.micro_batch, built.num_micro))
        built._add_rules()
        model.add_bool_and([built.keeps[name] for name in kept])
        return built

    def minimise_distance(self, rule: str) -> None:
        """Makes the distance from the offers' ranges (`gpu_range`) or from the job's batch as small as possible."""
        model = self.model
        value = self.num_gpus if rule == "gpu_range" else self.batch
        away = model.new_int_var(0, FURTHEST, "away")
        if rule == "gpu_range":
            for offer, is_taken in self._offers():
                model.add(away >= offer.num_gpus.min - value).only_enforce_if(is_taken)
                model.add(away >= value - offer.num_gpus.max).only_enforce_if(is_taken)
        else:
            model.add(away >= value - self.job.workload.global_batch_size)
            model.add(away >= self.job.workload.global_batch_size - value)
        model.minimize(away)

    def _offers(self) -> Iterator[tuple[Offer, cp_model.IntVar]]:
        """Every offer with the literal that says whether it is taken."""
        for index, offer in enumerate(self.job.offers):
            is_taken = self.model.new_bool_var(f"offer {index}")
            self.model.add(self.offer == index).only_enforce_if(is_taken)
            self.model.add(self.offer != index).only_enforce_if(~is_taken)
            yield offer, is_taken

    def _add_rules(self) -> None:
        self._add_offer_rules()
        self._add_tensor_rules()
        self._add_pipeline_rules()
        self._add_sequence_rule()
        self._add_context_rule()
        self._add_expert_rule()
        self._add_shard_rule()
        if self.job.workload.muon and not _can_update_matrices(self.job):
            self.model.add_bool_and(~self.keeps["whole_matrices"])
        batch = self.job.workload.global_batch_size
        self.model.add(self.batch == batch).only_enforce_if(self.keeps["batch"])

    def _add_offer_rules(self) -> None:
        """Ranges, whole nodes and number formats; as in the lattice, the ranks of a layer stay within a link domain."""
        for offer, is_taken in self._offers():
            self.model.add_linear_constraint(
                self.num_gpus, offer.num_gpus.min, offer.num_gpus.max
            ).only_enforce_if(is_taken, self.keeps["gpu_range"])
            self._add_divides(
                offer.node.num_accelerators, self.num_gpus, [is_taken, self.keeps["whole_nodes"]]
            )
            workload, chip = self.job.workload, offer.accelerator
            if not any(computes_in(workload, chip, precision) for precision in workload.precisions):
                self.model.add_bool_and(~is_taken).only_enforce_if(self.keeps["number_format"])
            if not self.job.search.tensor_parallel:
                self.model.add(self.tensor <= offer.node.link_domain_size).only_enforce_if(is_taken)

    def _add_divides(
        self, divisor: cp_model.IntVar | int, value: cp_model.IntVar, where: list[cp_model.IntVar]
    ) -> None:
        """Requires that a divisor divides a value where some literals hold."""
        remainder = self.model.new_int_var(0, FURTHEST, "remainder")
        self.model.add_modulo_equality(remainder, value, divisor)
        self.model.add(remainder == 0).only_enforce_if(*where)

    def _add_tensor_rules(self) -> None:
        from ortools.sat.python import cp_model

        model = self.job.workload.model
        kv_heads = split_heads(model)
        heads = [t for t in divisors(model.num_heads) if max(t, kv_heads) % min(t, kv_heads) == 0]
        if linear := model.linear_attention:
            heads = [t for t in heads if linear.num_heads % t == 0 and linear.num_key_heads % t == 0]
        if model.compressed_attention:
            heads = [1]
        blocks = divisors(model.ffn_hidden_size)
        if vision := shared_vision(model):
            heads = [t for t in heads if vision.num_heads % t == 0]
            blocks = [t for t in blocks if vision.ffn_hidden_size % t == 0]
        for name, allowed in (("attention_heads", heads), ("feed_forward", blocks)):
            domain = cp_model.Domain.from_values(allowed)
            self.model.add_linear_expression_in_domain(self.tensor, domain).only_enforce_if(self.keeps[name])

    def _add_pipeline_rules(self) -> None:
        """Cuts of the layers, by their index in the list of all cuts, and one of the schedules that the job lists."""
        from ortools.sat.python import cp_model

        pairs, valid = cuts(self.job), set(pipelines(self.job))
        place = self.model.new_int_var(0, len(pairs) - 1, "cut")
        rows = [(index, p, v) for index, (p, v) in enumerate(pairs)]
        self.model.add_allowed_assignments([place, self.pipeline, self.virtual], rows)
        domain = cp_model.Domain.from_values([index for index, cut in enumerate(pairs) if cut in valid])
        self.model.add_linear_expression_in_domain(place, domain).only_enforce_if(self.keeps["layers"])
        runs = []
        for schedule in self.job.search.pipeline_schedules:
            runs.append(is_run := self.model.new_bool_var(schedule.value))
            fits = cp_model.Domain.from_values([row for row, *cut in rows if _can_run(schedule, *cut)])
            self.model.add_linear_expression_in_domain(place, fits).only_enforce_if(
                is_run, self.keeps["schedule"]
            )
            if schedule in SPLIT_BACKWARD and not _can_split_backward(self.job):
                self.model.add_bool_and(~is_run).only_enforce_if(self.keeps["weight_gradients"])
            self._add_micro_batch_rules(schedule, is_run)
        self.model.add_exactly_one(runs)

    def _add_micro_batch_rules(self, schedule: Schedule, is_run: cp_model.IntVar) -> None:
        """Whole groups of micro-batches where a schedule uses groups; two per stage where it runs them in pairs."""
        if schedule is Schedule.DUAL_PIPE_V:
            is_kept = is_run, self.keeps["interleaving"]
            self.model.add(self.num_micro >= 2 * self.pipeline).only_enforce_if(*is_kept)
        if schedule is Schedule.ONE_F_ONE_B:
            is_interleaved = self.model.new_bool_var("interleaved")
            self.model.add(self.virtual > 1).only_enforce_if(is_interleaved)
            self.model.add(self.virtual == 1).only_enforce_if(~is_interleaved)
            self._add_groups([is_interleaved, is_run])

    def _add_groups(self, above: list[cp_model.IntVar]) -> None:
        """Whole groups with one micro-batch per stage, or groups of one of the sizes that the job lists."""
        sizes = self.job.search.interleaved_group_sizes
        if not sizes:
            self._add_divides(self.pipeline, self.num_micro, [*above, self.keeps["interleaving"]])
            return
        taken = [self.model.new_bool_var(f"groups of {size}") for size in sizes]
        self.model.add_bool_or(taken).only_enforce_if(*above)
        for size, is_taken in zip(sizes, taken, strict=True):
            kept = [*above, is_taken, self.keeps["interleaved_groups"]]
            left, is_whole = self.model.new_int_var(0, size - 1, "left"), self.model.new_bool_var("whole")
            self.model.add_modulo_equality(left, self.num_micro, size)
            self.model.add(self.pipeline <= size).only_enforce_if(*kept)
            self.model.add(self.num_micro >= size).only_enforce_if(*kept)
            self.model.add(left == 0).only_enforce_if(*kept, is_whole)
            self.model.add(left >= self.pipeline).only_enforce_if(*kept, ~is_whole)

    def _add_sequence_rule(self) -> None:
        workload = self.job.workload

        def is_split(tensor: int, context: int) -> bool:
            pieces = (2 * context if context > 1 else 1) * (tensor if workload.has_sequence_parallel else 1)
            return workload.sequence_length % pieces == 0

        # A table constraint cannot be conditional, so whether the rule holds is one of its columns.
        rows = [(t, c, int(is_split(t, c))) for t in tensors(self.job) for c in contexts(self.job)]
        is_kept = self.model.new_bool_var("sequence is split")
        self.model.add_allowed_assignments([self.tensor, self.context, is_kept], rows)
        self.model.add_implication(self.keeps["sequence"], is_kept)

    def _add_context_rule(self) -> None:
        rows = [
            (index, t, c, int(can_exchange(self.job, offer, t, c)))
            for index, offer in enumerate(self.job.offers)
            for t in tensors(self.job)
            for c in contexts(self.job)
        ]
        is_kept = self.model.new_bool_var("sequence is exchanged")
        self.model.add_allowed_assignments([self.offer, self.tensor, self.context, is_kept], rows)
        self.model.add_implication(self.keeps["context_exchange"], is_kept)

    def _add_expert_rule(self) -> None:
        mixture = self.job.workload.model.experts
        if mixture is None:
            return
        ranks = self.model.new_int_var(1, most_accelerators(self.job), "ranks")
        self.model.add_multiplication_equality(ranks, (self.tensor, self.context, self.replicas))
        shares = self.job.workload.expert_tensor_parallel
        holders = self.model.new_int_var(1, max(experts(self.job)) * shares, "ranks of a set of experts")
        self.model.add(holders == shares * self.expert)
        self._add_divides(holders, ranks, [self.keeps["experts"]])
        if mixture.expert_ffn_hidden_size % shares:
            self.model.add_bool_and(~self.keeps["experts"])
        remainder = self.model.new_int_var(0, mixture.num_experts, "experts left")
        self.model.add_modulo_equality(remainder, mixture.num_experts, self.expert)
        self.model.add(remainder == 0).only_enforce_if(self.keeps["experts"])

    def _add_shard_rule(self) -> None:
        """Groups of the ranks of a node, where the job lists nothing else: see `constraints.layout`."""
        search, offers = self.job.search, self.job.offers
        if False in search.hybrid_sharding:
            return
        rows = []
        for index, t, c, e in product(
            range(len(offers)), tensors(self.job), contexts(self.job), experts(self.job)
        ):
            z, holders = offers[index].node.num_accelerators // t or 1, e * expert_parts(self.job.workload)
            is_whole = z % c == 0 and max(z * t, holders) % min(z * t, holders) == 0
            rows.append((index, t, c, e, z, int(is_whole and max(search.searched_zero_stages) > 0)))
        group = self.model.new_int_var(1, max(row[4] for row in rows), "z")
        is_kept = self.model.new_bool_var("groups are whole")
        choices = [self.offer, self.tensor, self.context, self.expert, group, is_kept]
        self.model.add_allowed_assignments(choices, rows)
        self.model.add_implication(self.keeps["shard_groups"], is_kept)
        ranks = self.model.new_int_var(1, most_accelerators(self.job), "ranks with the same shards of layers")
        self.model.add_multiplication_equality(ranks, (self.replicas, self.context))
        self._add_divides(group, ranks, [self.keeps["shard_groups"]])


def _can_run(schedule: Schedule, pipeline: int, virtual: int) -> bool:
    """Whether a schedule can run a pipeline with these numbers of stages and of chunks per stage."""
    wanted = 2 if schedule in TO_AND_FRO else 1
    return schedule is Schedule.ONE_F_ONE_B or (pipeline > 1 and virtual == wanted)


def _can_split_backward(job: Job) -> bool:
    """Whether any listed recomputation keeps what late weight gradients read, and any listed ZeRO stage whole gradients."""
    keeping = {Recompute.NONE, Recompute.SELECTIVE} if job.workload.restores_inputs else {Recompute.NONE}
    if recomputes_encoder(job.workload):
        return False
    return not keeping.isdisjoint(job.search.recompute) and min(job.search.searched_zero_stages) <= 1


def _can_update_matrices(job: Job) -> bool:
    """Whether any listed choices keep matrices whole for Muon."""
    search = job.search
    is_fp16 = set(job.workload.precisions) == {Precision.FP16}
    return (
        min(search.searched_zero_stages) <= LAST_ZERO_STAGE
        and False in search.hybrid_sharding
        and not is_fp16
    )
