"""`det governance plan` and `%det_governance plan`: the matrix as a table and a picture, and why it cannot be shown."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from detlab.cli.commands.governance import governance
from detlab.errors import DetlabError
from detlab.governance import GovernanceError, Policy, TrainedParameter, compile_policy
from detlab.governance.picture import MOST_GROUPS, groups, svg, text
from detlab_magics.errors import MagicError
from detlab_magics.governancemagics import PlanPicture, compiled

CONFIG = """
hyperparameters:
  width: {type: int, minval: 16, maxval: 64}
  depth: 2
  dropout: {type: categorical, vals: [0.1, 0.2]}
governance:
  sources: [{name: trusted}, {name: web}]
  rules:
    - {source: "*", layers: ".*", scale: 1.0}
    - {source: web, layers: body, scale: 0.0}
"""
SHAPES = {"body.0.weight": [4, 4], "body.0.bias": [4], "head.weight": [2, 4]}
MODEL = """
class TrainedParameter:
    shape, requires_grad = (2, 2), True

class Net:
    def named_parameters(self, remove_duplicate=True):
        return [("body.weight", TrainedParameter()), ("head.weight", TrainedParameter())]
    def named_modules(self):
        return [("", self)]
    def modules(self):
        return [self]

def broken():
    raise ValueError("no data")

def sized(width, depth, *, dropout, act="relu"):
    if (width, depth, dropout) != (16, 2, 0.1):
        raise ValueError(f"{width} {depth} {dropout}")
    return Net()

def of_all(hparams):
    return sized(hparams["width"], hparams["depth"], dropout=hparams["dropout"])

def sampled(seed, width):
    return Net()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "shapes.json").write_text(json.dumps(SHAPES))
    (tmp_path / "governed_model.py").write_text(MODEL)
    return tmp_path


def det(*words: str):
    return CliRunner().invoke(governance, ["plan", *words])


def test_a_plan_is_printed_and_drawn_from_a_list_of_shapes(folder):
    result = det("config.yaml", "--parameters", "shapes.json", "--svg", "plan.svg")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["parameters", "trusted", "web"]
    assert lines[1].split() == ["body.0.*", "(2)", "open", "closed"]
    assert lines[2].split() == ["head.weight", "open", "open"]
    assert "closed" in (folder / "plan.svg").read_text()
    printed = json.loads(det("config.yaml", "--parameters", "shapes.json", "--json").output)
    assert printed["scales"] == [[1, 1, 1], [0, 0, 1]]
    assert printed["s_hash"] in result.output


@pytest.mark.parametrize("factory", ["Net", "sized", "of_all"])
def test_a_model_is_made_by_the_users_own_code_of_the_hyperparameters(folder, factory):
    result = det("config.yaml", "--model", f"governed_model:{factory}")
    assert result.exit_code == 0, result.output
    assert "body.weight" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["config.yaml", "--model", "governed_model:broken"], "ValueError: no data"),
        (["config.yaml", "--model", "governed_model:broke"], "did you mean 'broken'?"),
        (["config.yaml", "--model", "governed_model:sampled"], "takes seed, which the config's hyperparameters do not"),
        (["config.yaml", "--model", "absent_model:Net"], "No module named"),
        (["config.yaml", "--model", "governed_model:TrainedParameter"], "has no named_parameters"),
        (["config.yaml", "--parameters", "absent.json"], "cannot be read"),
        (["shapes.json", "--parameters", "shapes.json"], "has no block `governance`"),
        (["config.yaml", "--parameters", "config.yaml"], "maps names to shapes"),
    ],
)
def test_what_cannot_be_shown_is_said(folder, words, said):
    result = det(*words)
    assert result.exit_code == 1
    assert isinstance(result.exception, DetlabError)
    assert said in str(result.exception)


@pytest.mark.parametrize("words", [["config.yaml"], ["config.yaml", "--model", "x"]])
def test_wrong_usage_exits_with_two(folder, words):
    assert det(*words).exit_code == 2


def test_the_magic_shows_variables_and_files_alike(folder):
    namespace: dict[str, object] = {}
    exec(MODEL, namespace)  # the notebook's cell
    namespace["net"] = namespace["Net"]()
    namespace["mine"] = {"sources": [{"name": "web"}], "rules": [{"source": "*", "layers": ".*", "scale": 1}]}
    of_file = compiled("net", "config.yaml", None, namespace)
    assert compiled("Net", "config.yaml", None, namespace) == of_file
    assert compiled("net", "mine", None, namespace).sources == ("web",)
    assert compiled(None, "config.yaml", "shapes.json", namespace).sources == ("trusted", "web")
    bundle = PlanPicture(of_file)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/svg+xml", "text/plain"}
    for model, said in (
        ("absent", "no variable 'absent'"),
        ("mine", "neither a model nor"),
        (None, "name the variable"),
        ("broken", "broken made no model: ValueError: no data"),
        ("sampled", "takes seed, which the config's hyperparameters do not have"),
        ("TrainedParameter", "made a TrainedParameter, which has no named_parameters"),
    ):
        with pytest.raises((MagicError, DetlabError), match=said):
            compiled(model, "config.yaml", None, namespace)
    for model in ("sized", "of_all"):  # with the hyperparameters, as the command does
        assert compiled(model, "config.yaml", None, namespace) == of_file
    namespace["mine"] = {"sources": [{"name": "web"}], "rules": [{"source": "*", "layers": ".*", "scale": 0}]}
    with pytest.raises(GovernanceError, match="STARVED"):
        compiled("net", "mine", None, namespace)


def test_pictures_are_bounded_and_hold_no_markup_of_users():
    names = [f"layer{at}.<script>&\u202e" for at in range(3 * MOST_GROUPS)]
    rules = [{"source": "*", "layers": ".*", "scale": 1}]
    rules += [{"source": "web", "layers": rf"layer\d*{at}\..*", "scale": 0.5} for at in (1, 3, 5, 7, 9)]
    plan = compile_policy(
        Policy.of({"sources": [{"name": "web"}, {"name": "own"}], "rules": rules}),
        [TrainedParameter(n, (1,)) for n in names],
    )
    assert len(groups(plan.matrix)) == 3 * MOST_GROUPS
    drawn = svg(plan)
    ET.fromstring(drawn)
    assert "<script>" not in drawn
    assert "\u202e" not in drawn + text(plan)
    assert f"and {2 * MOST_GROUPS} more" in drawn
    assert f"and {2 * MOST_GROUPS} more" in text(plan)
