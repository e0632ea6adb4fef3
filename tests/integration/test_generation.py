"""The entries of docs/recipes.md: they load without transformers, and they are green with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode
from exporter.records.record import Status
from tests.integration.project import read_cells, run_exporter, write_project

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
NETS = """
import torch
import transformers


def llama():
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    )
    return scale(transformers.LlamaForCausalLM(config))


def lfm2():
    config = transformers.Lfm2Config(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        layer_types=["conv", "full_attention"],
    )
    return scale(transformers.Lfm2ForCausalLM(config))


def bert():
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )
    return scale(transformers.BertModel(config))


def bart():
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=64, d_model=16, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2,
        max_position_embeddings=64,
    )
    return scale(transformers.BartForConditionalGeneration(config))


def scale(model):
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model
"""


#: Compares generate.py, with padding on the left, with PyTorch.
CHECK = """
import sys
sys.path[:0] = ["{nets}", "{folder}"]
import numpy as np
import torch
import generate
import nets

torch.manual_seed(0)
model = nets.llama().eval()
ids = np.random.default_rng(0).integers(3, 64, (3, 9))
mask = np.ones_like(ids)
mask[0, :4] = 0


def run(ids, mask):
    tensors = torch.tensor(ids), torch.tensor(mask)
    tokens = model.generate(
        tensors[0], attention_mask=tensors[1], max_new_tokens=24, do_sample=False,
        eos_token_id=None,
    )
    return tokens[:, ids.shape[1]:].numpy()


actual = generate.generate(ids, 24, mask)
assert np.array_equal(actual, run(ids, mask)[:, : actual.shape[1]])
"""


#: Compares generate.py, which reads prompts token by token, with PyTorch.
STATES = """
import sys
sys.path[:0] = ["{nets}", "{folder}"]
import numpy as np
import torch
import generate
import nets

torch.manual_seed(0)
model = nets.lfm2().eval()
ids = np.random.default_rng(0).integers(3, 64, (3, 9))
expected = model.generate(
    torch.tensor(ids), max_new_tokens=24, do_sample=False, eos_token_id=None
)[:, 9:].numpy()
actual = generate.generate(ids, 24)
assert np.array_equal(actual, expected[:, : actual.shape[1]])
"""
BART = "bart-for-conditional-generation"
#: Compares generate.py, which runs both files, with PyTorch.
PAIR = """
import sys
sys.path[:0] = ["{folder}"]
import numpy as np
import torch
import transformers
import generate

model = transformers.BartForConditionalGeneration.from_pretrained("{source}")
model.generation_config = transformers.GenerationConfig(
    decoder_start_token_id=2, pad_token_id=1, bos_token_id=0
)
ids = np.random.default_rng(0).integers(3, 64, (3, 9))
mask = np.ones_like(ids)
mask[0, 6:] = 0
expected = model.generate(
    torch.tensor(ids), attention_mask=torch.tensor(mask), max_new_tokens=24, do_sample=False
)
actual = generate.generate(ids, 24, mask)
assert len(actual[0]) > 4 and np.array_equal(actual, expected[:, 1:][:, : actual.shape[1]])
other = generate.generate(ids, 24)
assert not np.array_equal(other, actual), "the mask of the encoder has no effect"
"""


def read_section() -> str:
    """Return the section about models that generate."""
    page = PAGE.read_text(encoding="utf-8")
    return page.partition("## Models that generate")[2].partition("## Files that another")[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    entries = re.findall(r"```toml\n(.*?)```", read_section(), re.DOTALL)
    passes = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    write_project(tmp_path, {"nets.py": NETS, "passes.py": passes})
    entry, interface, variant, _, states, _ = entries  # chains have tests of their own
    entry += 'measure = ["latency"]\n'
    (tmp_path / "manifests/nets.toml").write_text(f"format = 1\n{entry}\n{variant}")
    (tmp_path / "manifests/llama.interface.toml").write_text(interface)
    (tmp_path / "states.toml").write_text(states)
    return tmp_path


def test_the_entries_are_planned_without_transformers(project: Path) -> None:
    plan = run_exporter(project, "plan", code=0)
    assert plan.stdout.count("transformers (export)") == 2, plan.stdout


def test_the_entries_are_green_with_transformers(project: Path) -> None:
    export = run_exporter(project, "export")
    cells = read_cells(project)
    if find_spec("transformers") is None:
        assert export.returncode == 1
        assert "transformers is not installed: install" in export.stdout, export.stdout
        assert "    also: llama-float16/18/cpu\n" in export.stdout, export.stdout
        pytest.skip("transformers is not installed; see `zoo` of benchmarks/noxfile.py")
    assert {record.status for record in cells.values()} == {Status.PASS}, export.stdout
    checks = {each.check: each for each in cells["llama/18/cpu"].checks}
    assert checks["rollout"].metrics["steps"] == 3 * 32
    measured = cells["llama/18/cpu"].measurements
    assert measured is not None
    assert measured.latency is not None
    assert measured.latency.tokens == 32
    assert 0 < measured.latency.ratio < 1, "PyTorch is faster than the file"
    checks = {each.check: each for each in cells["llama-float16/18/cpu"].checks}
    assert checks["rollout"].metrics["tokens"] == "192 of 192"


def test_add_writes_the_entry_and_the_interface(project: Path) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed; see `zoo` of benchmarks/noxfile.py")
    written = (project / "manifests/llama.interface.toml").read_text()
    for path in (project / "manifests").glob("*.toml"):
        path.unlink()
    added = run_exporter(project, "add", "manifests/nets.py:llama", "--yes")
    assert "llama/18/cpu: pass" in added.stdout, added.stdout + added.stderr
    assert (project / "manifests/llama.interface.toml").read_text() == written
    entry = (project / "manifests/llama.toml").read_text().splitlines()
    assert "generate = { steps = 32, begin = 1, end = [2], padding = 0 }" in entry
    assert "axes.total = { max = 64 }" in entry
    _require_the_tokens_of_generate(project)
    added = run_exporter(project, "add", "manifests/nets.py:bert", "--yes")
    assert "bert/18/cpu: pass" in added.stdout, added.stdout + added.stderr
    entry = (project / "manifests/bert.toml").read_text()
    assert '{name = "attention_mask", shape = ["batch", "length"]' in entry
    assert "axes.length = {max = 64}" in entry


def test_add_writes_an_encoder_and_a_decoder_of_a_folder(project: Path) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed; see `zoo` of benchmarks/noxfile.py")
    for path in (project / "manifests").glob("*.toml"):
        path.unlink()
    save = "import sys, nets; nets.bart().save_pretrained(sys.argv[1])"
    command = [sys.executable, "-c", save, project / "bart"]
    subprocess.run(command, check=True, cwd=project / "manifests", capture_output=True)
    added = run_exporter(project, "add", "bart", "--yes")
    assert f"{BART}/18/cpu: pass" in added.stdout, added.stdout + added.stderr
    assert f"{BART}-encoder/18/cpu: pass" in added.stdout
    assert f"{BART}-decoder/18/cpu: pass" in added.stdout
    assert run_exporter(project, "export").returncode == 0
    published = run_exporter(project, "publish", BART, "dist")  # no weight is an initial value
    assert "1 file published" in published.stdout, published.stdout + published.stderr
    verified = run_exporter(project, "verify", "dist")
    assert "1 verdict: 1 proved, 0 red" in verified.stdout, verified.stdout
    folder = project / "moved"
    (project / f"dist/{BART}/18").rename(folder)
    assert (folder / "config.json").read_bytes() == (project / "bart/config.json").read_bytes()
    assert not (folder / "genai_config.json").exists()
    program = PAIR.format(source=project / "bart", folder=folder)
    command = [sys.executable, "-c", program]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_add_writes_a_decoder_of_one_token_with_its_states(project: Path) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed; see `zoo` of benchmarks/noxfile.py")
    for path in (project / "manifests").glob("*.toml"):
        path.unlink()
    added = run_exporter(project, "add", "manifests/nets.py:lfm2", "--yes")
    assert "lfm2/18/cpu: pass" in added.stdout, added.stdout + added.stderr
    written = (project / "manifests/lfm2.interface.toml").read_text()
    assert written == (project / "states.toml").read_text()
    assert run_exporter(project, "export").returncode == 0
    run_exporter(project, "publish", "dist", "--initial", code=0)
    verified = run_exporter(project, "verify", "dist")
    assert "1 verdict: 1 proved, 0 red" in verified.stdout, verified.stdout
    folder = project / "dist/lfm2/18"
    assert not (folder / "genai_config.json").exists()
    assert "no proved loop for a file that takes one token" in (folder / "README.md").read_text()
    program = STATES.format(nets=project / "manifests", folder=folder)
    command = [sys.executable, "-c", program]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def _require_the_tokens_of_generate(project: Path) -> None:
    """Publish the decoder, and compare its loop and ONNX Runtime GenAI with PyTorch.

    ONNX Runtime GenAI is compared if it is installed, as in the weekly job.
    """
    assert run_exporter(project, "export").returncode == 0
    run_exporter(project, "publish", "dist", "--initial", code=0)
    verified = run_exporter(project, "verify", "dist")
    assert "1 verdict: 1 proved, 0 red" in verified.stdout, verified.stdout
    folder, other = project / "dist/llama/18", project / "other"
    assert (find_spec("onnxruntime_genai") is None) is (
        "genai: unavailable: not installed; install" in verified.stderr
    )
    shutil.copytree(folder, other)
    config = json.loads((other / "genai_config.json").read_text())
    names = config["model"]["decoder"]["inputs"]
    for wrong in (False, True):
        judged = run_exporter(project, "verify", "--reference", str(folder), str(other))
        if find_spec("onnxruntime_genai"):
            message = "row 1: it selects token" if wrong else "GenAI 0."
            assert message in judged.stdout + judged.stderr, judged.stdout + judged.stderr
            assert judged.returncode == (ExitCode.RED if wrong else ExitCode.OK)
        else:
            assert judged.returncode == ExitCode.ENVIRONMENT, judged.stdout
        names["past_key_names"], names["past_value_names"] = (
            names["past_value_names"],
            names["past_key_names"],
        )
        (other / "genai_config.json").write_text(json.dumps(config))
    program = CHECK.format(nets=project / "manifests", folder=folder)
    checked = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
