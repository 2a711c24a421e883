"""The kernel classifier: known names, name splitting, robustness, speed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core import kernel_names
from tokenpath.core.kernel_names import Family, classify, classify_many
from tokenpath.core.kernel_words import split_name, split_words

_CASES = tomllib.loads(
    Path(__file__).with_name("kernel_names_cases.toml").read_text(encoding="utf-8")
)["group"]
_RULES = tomllib.loads(
    Path(kernel_names.__file__).with_name("kernel_names.toml").read_text(encoding="utf-8")
)
_KNOWN = tomllib.loads(
    Path(kernel_names.__file__).with_name("kernel_names_known.toml").read_text(encoding="utf-8")
)


def _list_cases() -> list[tuple[str, str, str]]:
    return [
        (family, name, group["source"])
        for group in _CASES
        for family, names in group.items()
        if family != "source"
        for name in names
    ]


def test_every_known_name_gets_its_family() -> None:
    wrong = []
    for family, name, source in _list_cases():
        verdict = classify(name)
        if verdict.family.value != family:
            wrong.append(
                f"{verdict.family.value} by {verdict.rule}, want {family}: {name[:90]} ({source[:40]})"
            )
    assert not wrong, "\n".join(wrong)


def test_no_name_is_listed_twice_and_families_exist() -> None:
    names = [name for _, name, _ in _list_cases()]
    assert len(names) == len(set(names))
    assert {family for family, _, _ in _list_cases()} <= set(Family)


def test_every_family_has_a_known_name() -> None:
    assert {family for family, _, _ in _list_cases()} == {family.value for family in Family}


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "nccl"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "cublas"),
        ("volta_sgemm_64x64_nt", "cublas"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "tensile"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", "aten"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "deepep"),
        ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)", "vllm"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<int> >(void*)", "cutlass"),
        ("triton_poi_fused_add_0", "inductor"),
        ("some_kernel", None),
    ],
)
def test_library_is_told_from_the_name(name: str, library: str | None) -> None:
    assert classify(name).library == library


def test_only_communication_is_communication() -> None:
    assert classify("ncclKernel_AllReduce_RING_LL_Sum_float").is_communication
    assert not classify("triton_poi_fused_add_all_reduce_embedding_0").is_communication


def test_a_verdict_names_the_rule_that_decided() -> None:
    ids = {row["id"] for group in _RULES.values() for row in group if "id" in row} | {"none"}
    ids |= {f"known.{family}" for family in _KNOWN}
    assert {classify(name).rule for _, name, _ in _list_cases()} <= ids


def test_rule_ids_are_unique_and_phrases_are_of_the_form_the_matcher_knows() -> None:
    for group, rows in _RULES.items():
        if group == "drop":
            continue
        ids = [row["id"] for row in rows]
        assert group == "library" or len(ids) == len(set(ids))
        for row in rows:
            phrases = [*row.get("any", []), *row.get("none", [])]
            for entry in row.get("all", []):
                phrases += [entry] if isinstance(entry, str) else entry
            for phrase in phrases:
                inner = phrase[1:-1] if len(phrase) > 1 else phrase
                assert "*" not in inner, (row["id"], phrase)
                assert phrase == phrase.lower().replace("_", ""), (row["id"], phrase)


def test_known_names_are_sorted_and_each_listed_once_under_an_existing_family() -> None:
    assert set(_KNOWN) <= set(Family)
    assert list(_KNOWN) == sorted(_KNOWN)
    assert all(names == sorted(names) for names in _KNOWN.values())
    every = [name for names in _KNOWN.values() for name in names]
    assert len(every) == len(set(every))


def test_a_known_name_is_known_however_it_is_written() -> None:
    for family, names in _KNOWN.items():
        for name in names:
            for written in (
                name,
                f"void some::{name}<float, 4>(float*)",
                f"kernel_cutlass_{name}_tensorptrbf16gmemalign16_0",
                f"kernel_cutlass_{name}_object_at__tensorptrbf16gmemalign16_0",
            ):
                if "::" in name and written.startswith("kernel_cutlass"):
                    continue
                assert classify(written).rule == f"known.{family}", written


def test_a_known_name_says_what_the_rules_would_not() -> None:
    rules_alone = kernel_names._Classifier(_RULES)
    for family, names in _KNOWN.items():
        for name in names:
            assert rules_alone.classify(name).family != family, name


@pytest.mark.parametrize(
    ("name", "head", "inside"),
    [
        ("void ns::fn<T, 4>(int, float*)", "ns::fn", "T, 4"),
        ("void (anonymous namespace)::fn<int>(long)", "fn", "int"),
        ("void at::native::<unnamed>::fn<(int)4, T>(T2 *)", "at::native::fn", "(int)4, T"),
        (
            "std::enable_if<!(false), void>::type a::gemvx::kernel<int>(P)",
            "a::gemvx::kernel",
            "int",
        ),
        ("ns::fn(int)", "ns::fn", ""),
        ("plain_name", "plain_name", ""),
        ("kernel.kd", "kernel", ""),
        ("fn [clone .kd]", "fn", ""),
        ("add Cmpt Exec", "add Cmpt Exec", ""),
        ("_ZN2ns2fnEv", "ns::fn", "_Z:Ev"),
        ("_ZN2ns12_GLOBAL__N_12fnIfEEvv", "ns::fn", "_Z:IfEEvv"),
        ("_Z6kernelPfi", "kernel", "_Z:Pfi"),
    ],
)
def test_a_name_is_split_into_function_and_arguments(name: str, head: str, inside: str) -> None:
    parts = split_name(name)
    assert parts.head == head
    assert parts.inside.startswith(inside)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fusedQKNormRope_kernel", "fused qk norm rope kernel"),
        ("RMSNorm", "rms norm"),
        ("Rmsnorm2dFwd", "rmsnorm2d fwd"),
        ("moeTopK", "moe top k"),
        ("MoESortingKernel", "moe sorting kernel"),
        ("s16816gemm_128x64", "s16816gemm 128x64"),
        ("W4A16Gemm", "w4a16 gemm"),
        ("Conv2DBackprop", "conv2d backprop"),
        ("ncclDevKernel_AllReduce", "nccl dev kernel all reduce"),
    ],
)
def test_an_identifier_is_cut_into_words(text: str, words: str) -> None:
    assert split_words(text) == f" ^ {words} $ "


@pytest.mark.parametrize(
    ("mangled", "demangled"),
    [
        ("_ZN4vllm15rms_norm_kernelIfEEvPT_", "void vllm::rms_norm_kernel<float>(float*)"),
        (
            "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelIfEEEEvv",
            "void ck_tile::kentry<1, ck_tile::FmhaFwdKernel<float> >()",
        ),
        (
            "_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4",
            "void deep_ep::intranode::dispatch<8, 768>(int4*)",
        ),
        ("_Z20softmax_warp_forwardIfLi10EEvPT_", "void softmax_warp_forward<float, 10>(float*)"),
    ],
)
def test_mangled_and_demangled_names_agree(mangled: str, demangled: str) -> None:
    assert classify(mangled) == classify(demangled)


@pytest.mark.parametrize("group", ["name", "functor", "ops"])
def test_the_index_finds_what_trying_every_rule_finds(group: str) -> None:
    rules = [kernel_names._read_rule(row) for row in _RULES[group]]
    indexed = kernel_names._RuleGroup(rules)
    for _, name, _ in _list_cases():
        words = split_words(name)
        slow = next((r for r in rules if _matches_slowly(r, words)), None)
        assert indexed.find(words) is slow, name


def _matches_slowly(rule: kernel_names._Rule, words: str) -> bool:
    any_occurs = not rule.any or any(phrase in words for phrase in rule.any)
    return any_occurs and rule.allows(words)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_gets_a_verdict(text: str) -> None:
    verdict = classify(text)
    assert verdict.family in Family
    assert verdict.rule
    assert classify(text) == verdict


@given(st.lists(st.sampled_from([name for _, name, _ in _list_cases()]), max_size=8))
@settings(max_examples=50, deadline=None)
def test_many_is_one_at_a_time(names: list[str]) -> None:
    assert classify_many(names) == [classify(name) for name in names]


@given(st.sampled_from([c for c in _list_cases() if c[1].startswith("void ") and "<" in c[1]]))
@settings(max_examples=60, deadline=None)
def test_parameters_do_not_change_the_verdict(case: tuple[str, str, str]) -> None:
    name = case[1]
    longer = name[:-1] + ", NormGemmAllReduceAttentionMoe const&)"
    assert classify(longer).family == classify(name).family


@pytest.mark.parametrize(
    "name",
    [
        "a" * 100_000,
        "_Z" + "9" * 50_000,
        "_ZN" + "1a" * 50_000,
        "f<" * 40_000,
        "(" * 40_000 + ")" * 40_000,
        "aA" * 50_000,
        "a_" * 50_000,
        "void " + "x<y>::" * 20_000 + "z(int)",
        "\x00\ud800\uffff" * 1000,
    ],
)
@pytest.mark.timeout(5)
def test_hostile_names_do_not_run_away(name: str) -> None:
    # What is quadratic in these lengths takes minutes.
    assert classify(name).family in Family
