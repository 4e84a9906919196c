#include "tensor/dtype.h"

namespace sterling {

std::size_t dtype_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64: case DType::kI64: case DType::kU64: return 64;
    case DType::kF32: case DType::kI32: case DType::kU32: return 32;
    case DType::kF16: case DType::kBF16: case DType::kI16: case DType::kU16: return 16;
    case DType::kF4E2M1: return 4;
    default: return 8;
  }
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "F64";
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E5M2: return "F8_E5M2";
    case DType::kF8E8M0: return "F8_E8M0";
    case DType::kF4E2M1: return "F4";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU64: return "U64";
    case DType::kU32: return "U32";
    case DType::kU16: return "U16";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
  }
  return "?";
}

}  // namespace sterling
