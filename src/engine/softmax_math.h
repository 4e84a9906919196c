// exp and log in double arithmetic, without the C library, whose variants differ by CPU: the same bits on every machine. Errors below
// 1e-15 relative; far more than a logprob's FP32 digits need.
#pragma once

namespace sterling::engine {

double exp_exact_order(double x);  // x <= 0 in every use; 0 below -700
double log_exact_order(double x);  // x > 0, normal

}  // namespace sterling::engine
