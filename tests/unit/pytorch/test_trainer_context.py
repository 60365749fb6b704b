"""The context: what it wraps, what it knows, and how it says what is wrong."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_contexts import BATCHES, Line, make_context, train

from detlab import core
from detlab.errors import DetlabError, InternalException, NotInCluster
from detlab.info import ClusterInfo, TrialInfo
from detlab.pytorch.checkpoint.matching import StateMismatch, load_models, load_optimizers
from detlab.pytorch.context.experimental import PyTorchExperimentalContext
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.errors import TrainerError


def with_model(**changes: Any) -> Any:
    context = make_context(**changes)
    model = context.wrap_model(Line(3.0))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return context, model, optimizer


# --- the surface

SIGNATURES = {
    "wrap_model": ["model"],
    "wrap_optimizer": [
        "optimizer",
        "backward_passes_per_step=1",
        "fp16_compression=False",
        "average_aggregated_gradients=True",
    ],
    "wrap_lr_scheduler": ["lr_scheduler", "step_mode", "frequency=1"],
    "wrap_scaler": ["scaler"],
    "wrap_reducer": ["reducer", "name=None", "for_training=True", "for_validation=True"],
    "reset_reducers": [],
    "reduce_metrics": ["for_training"],
    "autocast_forward_pass": ["to_wrap"],
    "backward": ["loss", "gradient=None", "retain_graph=False", "create_graph=False", "source_ids=None"],
    "step_optimizer": ["optimizer", "clip_grads=None", "auto_zero_grads=True", "scaler=None"],
    "to_device": ["data"],
    "set_profiler": ["*args", "**kwargs"],
    "configure_apex_amp": ["*args", "**kwargs"],
    "set_stop_requested": ["stop_requested"],
    "get_stop_requested": [],
    "is_epoch_start": [],
    "is_epoch_end": [],
    "current_train_epoch": [],
    "current_train_batch": [],
    "current_sample_ids": [],
    "current_sources": [],
    "serving": ["source"],
    "report_media": ["media", "steps_completed=None"],
    "get_hparam": ["name"],
    "get_hparams": [],
    "get_global_batch_size": [],
    "get_per_slot_batch_size": [],
    "get_trial_seed": [],
    "get_initial_batch": [],
    "get_experiment_id": [],
    "get_trial_id": [],
    "get_experiment_config": [],
    "get_data_config": [],
    "get_tensorboard_path": [],
    "get_tensorboard_writer": [],
    "get_enable_tensorboard_logging": [],
    "set_enable_tensorboard_logging": ["enable_tensorboard_logging"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_arguments_and_defaults_are_determineds(name):
    parameters = inspect.signature(getattr(PyTorchTrialContext, name)).parameters.values()
    plain = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]
    assert plain == ["self", *SIGNATURES[name]]


def test_what_determined_has_not_is_given_by_keyword_alone():
    kind = inspect.signature(PyTorchTrialContext.backward).parameters["source_ids"].kind
    assert kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", ["use_amp", "disable_dataset_reproducibility_checks", "disable_auto_to_device"])
def test_experimental_switches_take_nothing_as_determineds(name):
    assert list(inspect.signature(getattr(PyTorchExperimentalContext, name)).parameters) == ["self"]


def test_the_public_names_are_these_and_no_others():
    members = ["distributed", "device", "n_gpus", "models", "optimizers", "lr_schedulers", "profiler", "experimental"]
    assert sorted(name for name in dir(make_context()) if not name.startswith("_")) == sorted([*SIGNATURES, *members])


# --- facts


def test_what_the_context_was_made_of_is_what_it_answers():
    context = make_context(
        hparams={"lr": 0.1, "layers": {"width": 8}},
        trial_seed=77,
        steps_completed=120,
        exp_conf={"name": "e", "data": {"path": "/x"}},
    )
    assert context.get_hparam("lr") == 0.1
    assert context.get_hparams() == {"lr": 0.1, "layers": {"width": 8}}
    assert context.get_trial_seed() == 77
    assert context.get_initial_batch() == 120
    assert context.get_experiment_config()["name"] == "e"
    assert context.get_data_config() == {"path": "/x"}
    assert make_context().get_data_config() == {}
    assert context.device == torch.device("cpu")
    assert context.n_gpus == 0
    assert context.distributed.get_size() == 1


def test_ids_are_those_of_the_task():
    context = make_context()
    task = ClusterInfo(
        master_url="", cluster_id="c", agent_id="a", slot_ids=[0], task_id="t", allocation_id="l", task_type="TRIAL",
        latest_checkpoint=None, user_data={}, container_addrs=[], container_rank=0, container_slot_counts=[],
        gpu_uuids=[], task_dir=Path(), _trial=TrialInfo(trial_id=12, experiment_id=5, trial_seed=1),
    )  # fmt: skip
    context._core.info = task
    assert (context.get_trial_id(), context.get_experiment_id()) == (12, 5)
    context._core.info = dataclasses.replace(task, _trial=None, task_type="NOTEBOOK")
    with pytest.raises(RuntimeError, match="NOTEBOOK has no trial"):
        context.get_trial_id()


def test_off_cluster_there_are_no_ids():
    with pytest.raises(NotInCluster, match="off-cluster, where there is no experiment id"):
        make_context().get_experiment_id()
    with pytest.raises(NotInCluster, match="no trial id"):
        make_context().get_trial_id()


@pytest.mark.parametrize(
    ("size", "slots", "per_slot", "together"),
    [(64, 1, 64, 64), (64, 0, 64, 64), (64, 4, 16, 64), (65, 4, 16, 64), (2, 2, 1, 2)],
)
def test_the_global_batch_is_shared_evenly(size, slots, per_slot, together):
    context = make_context(hparams={"global_batch_size": size}, slots_per_trial=slots)
    assert context.get_per_slot_batch_size() == per_slot
    assert context.get_global_batch_size() == together


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({}, "no hyperparameter 'global_batch_size'; known: none"),
        ({"global_batch_size": 3}, "is 3, too small for 4 slots"),
        ({"global_batch_size": 0}, "must be a positive integer, not 0"),
        ({"global_batch_size": "64"}, "must be a positive integer, not '64'"),
        ({"global_batch_size": True}, "must be a positive integer, not True"),
        (None, "this trial has no hyperparameters"),
    ],
)
def test_batch_sizes_that_make_no_sense_are_explained(hparams, message):
    context = make_context(hparams=hparams, slots_per_trial=4)
    for ask in (context.get_global_batch_size, context.get_per_slot_batch_size):
        with pytest.raises(TrainerError, match=message):
            ask()


def test_an_unknown_hyperparameter_is_answered_with_the_known_ones():
    context = make_context(hparams={"learning_rate": 1, "dropout": 2})
    with pytest.raises(DetlabError) as caught:
        context.get_hparam("learning_rat")
    assert "there is no hyperparameter 'learning_rat'; known: learning_rate, dropout" in str(caught.value)
    assert "did you mean 'learning_rate'?" in str(caught.value)
    with pytest.raises(TrainerError, match=r"known: none(.|\n)*pytorch.init\(hparams=…\)"):
        make_context().get_hparam("lr")


def test_what_is_missing_is_said():
    context = make_context(trial_seed=None, exp_conf=None, hparams=None)
    with pytest.raises(TrainerError, match="has no seed"):
        context.get_trial_seed()
    with pytest.raises(TrainerError, match="has no experiment config"):
        context.get_experiment_config()
    with pytest.raises(TrainerError, match="has no hyperparameters"):
        context.get_hparams()


def test_a_gpu_that_is_not_there_is_named():
    context = make_context()
    context.distributed.size, context.distributed.local_rank = 1000, 999
    with pytest.raises(TrainerError, match=r"rank 0 is to train on GPU 999, and torch sees \d+ GPU\(s\)"):
        make_context(core_context=context._core, num_gpus=1)


def test_data_goes_to_the_device_in_its_containers():
    context = make_context()
    data = {"x": [torch.ones(2), (torch.zeros(1), "name")]}
    moved = context.to_device(data)
    assert torch.equal(moved["x"][0], torch.ones(2))
    assert moved["x"][1][1] == "name"


def test_tensorboard_has_one_switch():
    context = make_context(enable_tensorboard_logging=False)
    assert context.get_enable_tensorboard_logging() is False
    context.set_enable_tensorboard_logging(True)
    assert context.get_enable_tensorboard_logging() is True
    with pytest.raises(TrainerError, match="takes True or False, not 1"):
        context.set_enable_tensorboard_logging(1)
    assert context.get_tensorboard_path().is_dir()


def test_there_is_one_tensorboard_writer_and_it_writes_there(tmp_path):
    context = make_context()
    context.get_tensorboard_path = lambda: tmp_path
    writer = context.get_tensorboard_writer()
    assert context.get_tensorboard_writer() is writer
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_the_profiler_is_torchs():
    context = make_context()
    context.set_profiler(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=lambda _: None)
    with context.profiler as profiler:
        torch.ones(2).sum()
    assert any(event.key == "aten::sum" for event in profiler.key_averages())


# --- where training is


def test_before_training_nothing_is_current():
    context = make_context()
    questions = ("current_train_batch", "current_train_epoch", "is_epoch_start", "is_epoch_end", "current_sample_ids")
    for question in questions:
        with pytest.raises(TrainerError, match="training has not started") as caught:
            getattr(context, question)()
        assert isinstance(caught.value, InternalException)  # what scripts for Determined catch


def test_batch_and_epoch_are_those_of_the_loop():
    context = make_context()
    seen = train(
        context,
        6,
        lambda _: (
            context.current_train_batch(),
            context.current_train_epoch(),
            context.is_epoch_start(),
            context.is_epoch_end(),
        ),
        epoch_length=3,
    )
    assert seen == [(i, i // 3, i % 3 == 0, i % 3 == 2) for i in range(6)]
    context._begin_batch(6, 2, True, False, [4, 9])
    assert context.current_sample_ids() == [4, 9]


def test_a_stop_is_a_boolean():
    context = make_context()
    assert context.get_stop_requested() is False
    context.set_stop_requested(True)
    assert context.get_stop_requested() is True
    context.set_stop_requested(False)
    assert context.get_stop_requested() is False
    with pytest.raises(TrainerError, match="takes True or False, not 'yes'"):
        context.set_stop_requested("yes")


def test_modes_reach_all_models():
    context = make_context()
    models = [context.wrap_model(torch.nn.Sequential(torch.nn.Dropout())) for _ in range(2)]
    context._eval()
    assert not any(model.training or model[0].training for model in models)
    context._train()
    assert all(model.training and model[0].training for model in models)


def test_reducers_are_part_of_the_context():
    context = make_context()
    reducer = context.wrap_reducer(max, name="top")
    reducer.update(3)
    reducer.update(8)
    assert context.reduce_metrics(for_training=True) == {"top": 8}


def test_switches_are_remembered():
    context = make_context()
    assert context.experimental._auto_to_device
    context.experimental.disable_auto_to_device()
    context.experimental.disable_dataset_reproducibility_checks()
    assert not context.experimental._auto_to_device
    assert context.experimental._data_repro_checks_disabled


def test_phases_are_shown_to_the_watchdog():
    context, model, optimizer = with_model()
    state = context._loop_state
    context._begin_batch(0, 0, True, False)
    context.backward(BATCHES[0].tensor_loss(model))
    assert state.phase == "backward"
    context.step_optimizer(optimizer)
    assert state.phase == "step"


# --- state


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(2, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.encoder(x))


def inner_compiled() -> torch.nn.Module:
    model = Nested()
    model.encoder = torch.compile(model.encoder, backend="eager")
    return model


MAKERS = {
    "plain": Nested,
    "compiled before": lambda: torch.compile(Nested(), backend="eager"),
    "compiled inside": inner_compiled,
}


@pytest.mark.parametrize("how", MAKERS)
def test_state_has_the_models_own_names_whatever_was_compiled(how):
    torch.manual_seed(0)
    context = make_context()
    model = context.wrap_model(MAKERS[how]())
    model(torch.ones(4, 2))
    (state,) = context._shard().models
    assert list(state) == list(Nested().state_dict())


@pytest.mark.parametrize("target", MAKERS)
@pytest.mark.parametrize("source", MAKERS)
def test_state_of_a_compiled_model_fits_a_plain_one_and_the_other_way_round(source, target):
    context = make_context()
    context.wrap_model(MAKERS[source]())
    states = context._shard().models
    other = make_context()
    other.wrap_model(MAKERS[target]())
    load_models(other.models, states)
    (loaded,) = other._shard().models
    assert all(torch.equal(loaded[name], value) for name, value in states[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model_trains_as_a_plain_one(when, backend):
    def weights(compiled: str | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        context = make_context()
        model = Nested()
        if compiled == "before":
            model = torch.compile(model, backend=backend)
        model = context.wrap_model(model)
        optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        if compiled == "after":
            model = torch.compile(model, backend=backend)
        context._check_ready()
        context._train()
        x = torch.arange(8.0).reshape(4, 2)

        def train_batch(_: int) -> None:
            context.backward(model(x).square().mean() + model(x).sum())
            context.step_optimizer(optimizer)

        train(context, 3, train_batch)
        return list(context._shard().models[0].values())

    for found, expected in zip(weights(when), weights(None), strict=True):
        torch.testing.assert_close(found, expected)


def test_optimizers_go_on_where_they_were():
    context, model, optimizer = with_model()
    momentum = context.wrap_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))

    def train_batch(_: int) -> None:
        context.backward(BATCHES[0].tensor_loss(model))
        context.step_optimizer(momentum, auto_zero_grads=False)
        context.step_optimizer(optimizer)

    train(context, 3, train_batch)
    states = context._shard().optimizers
    assert [len(state["state"]) for state in states] == [1, 1]
    other, *_ = with_model()
    with pytest.raises(StateMismatch, match="2 optimizers in the checkpoint, 1 in the trial"):
        load_optimizers(other.optimizers, states)
    other.wrap_optimizer(torch.optim.Adam(other.models[0].parameters(), lr=1.0))
    load_optimizers(other.optimizers, states)
    assert other.optimizers[1].param_groups[0]["lr"] == 0.1
    assert other.optimizers[1].state_dict()["state"][0]["step"] == 3


def test_without_managed_training_models_stay_as_they_are():
    context = make_context(managed_training=False)
    model = Line(1.0)
    assert context.wrap_model(model) is model
    assert context.models == [model]


# --- bad input


def test_a_trial_that_wraps_nothing_is_told_both():
    with pytest.raises(TrainerError) as caught:
        make_context()._check_ready()
    assert "no model is wrapped" in str(caught.value)
    assert "no optimizer is wrapped" in str(caught.value)


def test_everything_wrong_is_listed_at_once():
    context = make_context()
    stray = torch.nn.Linear(3, 2)
    model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    context.wrap_optimizer(
        torch.optim.SGD([{"params": model.parameters()}, {"params": [*stray.parameters(), model[0].weight][:2]}], lr=1)
    )
    context.wrap_optimizer(torch.optim.Adam(Line(1.0).parameters()))
    model[1].to("meta")
    with pytest.raises(TrainerError) as caught:
        context._check_ready()
    message = str(caught.value)
    assert "model 0 (Sequential): 1.weight and 4 more is on meta, the context's device is cpu" in message
    assert "optimizer 0 (SGD): 2 of the 2 parameters of its group 1 (the first has shape (2, 3))" in message
    assert "optimizer 1 (Adam): 1 of the 1 parameters of its group 0 (the first has shape (1,))" in message
    assert "model 0 (Sequential): 1.weight" in message
    with pytest.raises(TrainerError, match=r"training cannot continue:\n  model 0 \(Sequential\): 1.weight"):
        context._check_unmoved()


def test_a_model_that_was_replaced_after_the_optimizer_was_made_is_found():
    context, _, _ = with_model()
    context._check_ready()
    context.models[0].w = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(TrainerError, match="belong to no wrapped model: the model was not wrapped, or was replaced"):
        context._check_ready()


def test_a_model_that_stays_passes_the_cheap_check():
    context, _, _ = with_model()
    context._check_unmoved()


@pytest.mark.parametrize("model", [None, "model", Line, lambda x: x])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(TrainerError, match=r"wrap_model\(model\): it must be a torch.nn.Module"):
        make_context().wrap_model(model)


def test_a_model_is_wrapped_once_also_if_it_was_compiled_since():
    context, model, _ = with_model()
    for again in (model, torch.compile(model, backend="eager")):
        with pytest.raises(TrainerError, match="this model is already wrapped"):
            context.wrap_model(again)
    assert len(context.models) == 1


def test_a_model_in_data_parallel_is_refused():
    with pytest.raises(TrainerError, match="give the bare model, without DataParallel"):
        make_context().wrap_model(torch.nn.DataParallel(Line(1.0)))


def test_several_processes_need_a_process_group():
    core_context = core.init()
    core_context.distributed.size = 2
    context = make_context(core_context=core_context)
    with pytest.raises(TrainerError, match=r"has 2 processes, and torch.distributed is not initialised(.|\n)*init\(\)"):
        context.wrap_model(Line(1.0))


def test_all_mistakes_of_wrap_optimizer_are_listed():
    with pytest.raises(TrainerError) as caught:
        make_context().wrap_optimizer("sgd", 0, "yes", 1)
    message = str(caught.value)
    assert "optimizer must be a torch.optim.Optimizer, not 'sgd'" in message
    assert "backward_passes_per_step must be an integer of 1 or more, not 0" in message
    assert "fp16_compression must be True or False, not 'yes'" in message
    assert "average_aggregated_gradients must be True or False, not 1" in message


def test_an_optimizer_is_wrapped_once():
    context, _, optimizer = with_model()
    with pytest.raises(TrainerError, match="this SGD is already wrapped"):
        context.wrap_optimizer(optimizer)
