// Everything generic, in order of need. A tier includes this after its vec.inl and after defining kTierName, kRowTile, columns_of and tiles_of,
// and defines Bf16 before it includes table.inl.
#include "kernels/generic/math.inl"
#include "kernels/generic/gemm.inl"
#include "kernels/generic/gemm_wide.inl"
#include "kernels/generic/attention.inl"
#include "kernels/generic/gdn.inl"
#include "kernels/generic/rows.inl"
