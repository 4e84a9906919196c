// Everything generic, in order of need. A tier includes this after its vec.h and after defining kTierName, kRowTile and columns_of, and
// defines Bf16 before it includes table.inl.
#include "kernels/generic/math.inl"
#include "kernels/generic/gemm.inl"
#include "kernels/generic/attention.inl"
#include "kernels/generic/gdn.inl"
#include "kernels/generic/rows.inl"
