#!/usr/bin/env python3
"""A stand-in for hipblaslt-bench, with the real one's options and output, and made-up times.

Options and output are those of the tool's documentation:
https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/conceptual/hipblaslt-clients.html and, for what it does when
HIPBLASLT_TUNING_FILE is set, .../how-to/how-to-use-hipblaslt-offline-tuning.html. That the file begins with a line
"Git Version: ..." is in the library's reader of it, UserDrivenTuningParser.cpp.
A product with m = 4242 waits while there is a file `hold` in the directory of all results.
"""

import argparse
import os
import sys
import time
from pathlib import Path

NAMES = (
    "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,"
    "a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
    "rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,solution_index,kernel_name"
)
TYPES = ("f64_r", "f32_r", "xf32_r", "f16_r", "bf16_r", "i8_r", "i32_r", "f8_r", "bf8_r")

parser = argparse.ArgumentParser(allow_abbrev=False)
for short, name, default in (
    ("-m", "--sizem", 128),
    ("-n", "--sizen", 128),
    ("-k", "--sizek", 128),
    ("-i", "--iters", 10),
    ("-j", "--cold_iters", 2),
):
    parser.add_argument(short, name, type=int, default=default)
for name in ("lda", "ldb", "ldc", "ldd", "stride_a", "stride_b", "stride_c", "stride_d"):
    parser.add_argument(f"--{name}", type=int, default=0)
for name in ("a", "b", "c", "d", "compute", "scale", "bias"):
    parser.add_argument(f"--{name}_type", choices=TYPES, default="f32_r")
parser.add_argument("--alpha", type=float, default=1)
parser.add_argument("--beta", type=float, default=0)
parser.add_argument("--transA", choices=("N", "T", "C"), default="N")
parser.add_argument("--transB", choices=("N", "T", "C"), default="N")
parser.add_argument("--batch_count", type=int, default=1)
parser.add_argument("--api_method", choices=("c", "mix", "cpp"), default="c")
parser.add_argument("--activation_type", default="none")
parser.add_argument("--bias_vector", action="store_true")
parser.add_argument("--algo_method", choices=("heuristic", "all", "index"), default="heuristic")
parser.add_argument("--solution_index", type=int, default=-1)
parser.add_argument("--requested_solution", type=int, default=1)
parser.add_argument("--rotating", type=int, default=0)
parser.add_argument("--skip_slow_solution_ratio", type=float, default=0)
parser.add_argument("--device", type=int, default=0)
parser.add_argument("--print_kernel_info", action="store_true")
given = parser.parse_args()

file = Path(os.environ["HIPBLASLT_TUNING_FILE"])
assert "HIPBLASLT_TUNING_OVERRIDE_FILE" not in os.environ
while given.sizem == 4242 and (file.parents[2] / "hold").exists():
    time.sleep(0.05)
values = vars(given)
us = given.sizem * given.sizen * given.sizek / 1e6
row = ",".join(
    [
        *(given.transA, given.transB, "0", *(str(values[n]) for n in ("batch_count", "sizem", "sizen", "sizek"))),
        *(f"{values[n]:g}" for n in ("alpha", "lda", "stride_a", "beta", "ldb", "stride_b", "ldc", "stride_c")),
        *(f"{values[n]:g}" for n in ("ldd", "stride_d")),
        *(values[f"{n}_type"] for n in ("a", "b", "c", "d", "compute")),
        *("0", "0", "0", "0", "0", given.activation_type, str(int(given.bias_vector)), given.bias_type),
        *(str(given.rotating), "100", "10", f"{us:g}", str(given.sizem + 1), "Cijk_stand_in"),
    ]
)
print(f"[0]:{NAMES}\n    {row}\nWinner:\n{NAMES}\n    {row}")
head = "" if file.exists() else f"Git Version: 0000000\n{NAMES}\n"
with file.open("a", encoding="utf-8") as out:
    out.write(f"{head}{row}\n")
sys.exit(0)
