"""Which test files are begun first."""

LONGEST = (
    "test_ray_cluster.py",
    "test_ray_kills.py",
    "test_tutorials.py",
    "test_chat_process.py",
    "test_bench_serve.py",
    "test_bench_cli.py",
    "test_modules_loaded.py",
    "test_bf16_parity.py",
    "test_wheels.py",
    "test_serve_page.py",
    "test_smollm2.py",
    "test_bench_step.py",
    "test_interpreter.py",
    "test_zoo.py",
    "test_distributions.py",
    "test_bench_imagine.py",
    "test_frozen_ids.py",
    "test_image_weights.py",
    "test_motion_weights.py",
    "test_cli_eval.py",
    "test_spawned_draft.py",
    "test_spawned_processes.py",
    "test_standing_draft.py",
    "test_parallel_faults.py",
    "test_parse_effort.py",
    "test_parse_many_workers.py",
    "test_parse_kills.py",
    "test_kernel_compile.py",
    "test_qwen_pair_process.py",
    "test_serve_parallel.py",
    "test_train_draft.py",
)
"""Files that take longest on two cores, by the list that `make check` ends with.

xdist would begin with the files that have most tests, so that a file of a few long tests is the
last one, with nothing left for the other core (hence `--no-loadscope-reorder` in the Makefile).
"""
