# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/options.md, what each stage makes of each option: `python docs/make_options.py`."""

import dataclasses
from pathlib import Path

from hf_dse.common.options import complete
from hf_dse.stages.options import REFUSED, REFUSED_WITH_DATA, REFUSED_WITHOUT_TEACHER, STAGES


PAGE = Path(__file__).with_name("options.md")
HEADER = """# Options

What each stage makes of each option of `hf-dse distill`, and of the arguments of its trainer, by
`python docs/make_options.py`. An option is *followed*, and a test shows that it changes what it says; it is *refused*
with an error before anything is loaded; or it is carried out by *transformers* alone, for a reason below. A field that
has no place here, such as one of a new version of transformers, fails `tests/stages/test_options.py`.

As with any loss of a `Trainer`, that of accumulated batches is the mean of their means: where they have unequal
numbers of rows with labels or scores, such as at the end of an epoch, it is not quite that of one larger batch.
"""
# Tests that show what an option does; that of all others is in `tests/stages/test_options.py`.
SHOWN = {
    "model_name_or_path": "stages/test_run.py::test_a_killed_recipe_goes_on",
    "stage": "stages/test_distill.py::test_one_call_equals_the_command",
    "teacher_name_or_path": "stages/test_pairs_stage.py::test_from_a_teacher_to_a_folder",
    "overwrite_output_dir": "stages/test_pairs_stage.py::test_from_a_teacher_to_a_folder",
    "cache_dir": "stages/test_pairs_stage.py::test_from_a_teacher_to_a_folder",
    "pairs_file": "stages/test_ranking_stage.py::test_pairs_are_mixed_in",
    "teacher_dtype": "stages/test_options.py::test_how_a_teacher_is_asked",
    "teacher_max_length": "stages/test_options.py::test_how_a_teacher_is_asked",
    "windows": "stages/test_options.py::test_how_a_teacher_is_asked",
    "teacher_weights": "stages/test_ranking_stage.py::test_several_teachers_are_one",
    "teacher_bm25_weight": "stages/test_ranking_stage.py::test_several_teachers_are_one",
    "query_prompt": "common/test_settings.py::test_a_student_embeds_as_its_source",
    "document_prompt": "common/test_settings.py::test_a_student_embeds_as_its_source",
    "task_name": "data/test_pairs.py::test_resolving_a_task",
    "dataset_name": "stages/test_distill.py::test_loaded_models_and_datasets_give_the_same_student",
    "dataset_config_name": "data/test_sources.py::test_configurations_of_a_data_set",
    "train_file": "stages/test_ranking_stage.py::test_without_a_teacher_only_labels_count",
    "validation_file": "stages/test_options.py::test_which_rows_are_read",
    "test_file": "stages/test_ranking_stage.py::test_the_passages_of_files_are_learned_and_searched",
    "text_column": "stages/test_options.py::test_which_rows_are_read",
    "corpus_file": "stages/test_ranking_stage.py::test_the_passages_of_files_are_learned_and_searched",
    "chunk_size": "stages/test_ranking_stage.py::test_the_passages_of_files_are_learned_and_searched",
    "relevance_threshold": "data/test_rankings.py::test_what_counts_as_relevant",
    "sentence1_column": "data/test_pairs.py::test_columns_may_be_named",
    "sentence2_column": "data/test_pairs.py::test_columns_may_be_named",
    "label_column": "data/test_pairs.py::test_columns_may_be_named",
    "num_labels": "stages/test_pairs_stage.py::test_classes",
    "symmetric": "teacher/test_score.py::test_a_symmetric_score_is_the_mean_of_both_orders",
    "max_train_samples": "stages/test_options.py::test_which_rows_are_read",
    "max_eval_samples": "stages/test_options.py::test_which_rows_are_read",
    "output_dir": "stages/test_run.py::test_a_later_stage_takes_dropout_and_prompts_only",
    "resume_from_checkpoint": "training/test_base.py::test_a_training_goes_on_from_its_newest_complete_checkpoint",
    "load_best_model_at_end": "training/test_ranking_trainer.py::test_students_learn_to_rank",
    "metric_for_best_model": "training/test_arguments.py::test_the_best_model_needs_a_loss_or_a_metric",
    "greater_is_better": "training/test_arguments.py::test_evaluation_and_saving_follow_the_data",
    "cached_gradients": "training/test_ranking_trainer.py::test_cached_gradients_are_the_plain_ones",
    "fp16": "training/test_arguments.py::test_the_precision_is_that_of_accelerate",
    "hub_model_id": "stages/test_options.py::test_a_finished_model_is_pushed",
    "hub_private_repo": "stages/test_options.py::test_a_finished_model_is_pushed",
    "hub_revision": "stages/test_options.py::test_a_finished_model_is_pushed",
    "hub_token": "stages/test_options.py::test_a_finished_model_is_pushed",
    "push_to_hub": "stages/test_options.py::test_a_finished_model_is_pushed",
}
# What transformers does alone, and why it needs no test here.
OWNED = {
    "Speed and memory: results differ by rounding at most.": (
        "activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing "
        "gradient_checkpointing_kwargs torch_compile torch_compile_backend torch_compile_mode "
        "torch_empty_cache_steps auto_find_batch_size tf32 full_determinism per_device_eval_batch_size "
        "eval_accumulation_steps eval_use_gather_object dataloader_num_workers dataloader_pin_memory "
        "dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context "
        "dataloader_in_order"
    ),
    "Devices and processes: they are set up before a trainer is.": (
        "use_cpu local_rank accelerator_config ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
        "ddp_static_graph ddp_backend ddp_timeout"
    ),
    "Logs: nothing that is learned depends on them.": (
        "logging_strategy logging_first_step log_on_each_node logging_nan_inf_filter include_num_input_tokens_seen "
        "log_level log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id "
        "trackio_static_space_id debug skip_memory_metrics"
    ),
    "Checkpoints, and what is taken from one: its callbacks and its place in the data.": (
        "save_steps save_only_model save_on_each_node enable_jit_checkpoint ignore_data_skip "
        "restore_callback_states_from_checkpoint"
    ),
    "Read by scripts of transformers alone: a stage trains, and evaluates each labelled split.": (
        "do_train do_eval do_predict"
    ),
    "For the `compute_metrics` that a Python caller passes to `DseTrainer`.": "include_for_metrics",
    "For optimizers that come with other packages.": "optim_target_modules",
    "A permission, which is not needed where no code comes with a model.": "trust_remote_code",
}
# An evaluation of this stage has a loss alone.
OWNED_BY_STAGE = {("general", "prediction_loss_only"): "An evaluation of the general stage has a loss alone anyway."}


def options_of(stage: str) -> dict[str, tuple[type, dataclasses.Field]]:
    """The options of a stage by their names, each with its class."""
    kinds = [complete(kind) for kind in STAGES[stage]]
    return {entry.name: (kind, entry) for kind in kinds for entry in dataclasses.fields(kind) if entry.init}


def refused_of(stage: str) -> dict[str, str]:
    """The options that a stage refuses, and why."""
    return {**REFUSED[stage], **complete(STAGES[stage][-1]).refused}


def owner_of(stage: str, name: str) -> str | None:
    """Why transformers alone carries out an option."""
    groups = (reason for reason, names in OWNED.items() if name in names.split())
    return OWNED_BY_STAGE.get((stage, name)) or next(groups, None)


def what_of(stage: str, name: str) -> str:
    """What a stage makes of an option."""
    if name not in options_of(stage):
        return "-"
    if name in refused_of(stage):
        return "refused"
    return "followed" if owner_of(stage, name) is None else "transformers"


def make_options() -> str:
    names = list(dict.fromkeys(name for stage in STAGES for name in options_of(stage)))
    lines = [
        HEADER,
        "## By stage",
        "",
        f"| Option | {' | '.join(STAGES)} | Shown by |",
        "|---" * (len(STAGES) + 2) + "|",
    ]
    for name in names:
        cells = [what_of(stage, name) for stage in STAGES]
        test = f"`{SHOWN.get(name, 'stages/test_options.py')}`" if "followed" in cells else ""
        lines.append(f"| `{name}` | {' | '.join(cells)} | {test} |")
    lines += ["", "## Refused", "", "Another value than the default is an error.", ""]
    where: dict[str, dict[str, list[str]]] = {}
    for stage in STAGES:
        for name in refused_of(stage).keys() & options_of(stage).keys():
            where.setdefault(refused_of(stage)[name], {}).setdefault(name, []).append(stage)
    for title, refused in (("with loaded data", REFUSED_WITH_DATA), ("without a teacher", REFUSED_WITHOUT_TEACHER)):
        for name, reason in refused.items():
            where.setdefault(reason, {})[name] = [title]
    for reason, stages in sorted(where.items()):
        told = [f"`{name}`" for name in names if name in stages]
        places = sorted({", ".join(of_name) for of_name in stages.values() if len(of_name) < len(STAGES)})
        lines.append(f"- {', '.join(told)}{f' ({places[0]})' if places else ''}: {reason}.")
    lines += ["", "## Left to transformers", ""]
    for reason, group in {**OWNED, **{reason: name for (_, name), reason in OWNED_BY_STAGE.items()}}.items():
        lines.append(f"- {', '.join(f'`{name}`' for name in group.split())}: {reason}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_options(), encoding="utf-8")
