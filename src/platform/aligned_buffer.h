// Owned memory for weights, pools and scratch. Zero-initialised, aligned to 64 bytes (one cache line, one AVX-512 register);
// from kHugePageBytes on it is mapped in whole 2 MiB units, aligned so and offered to transparent huge pages. The storage is
// padded with zeros to a multiple of 64 bytes, so a kernel may read (not interpret) a whole vector at the end.
//
// Large buffers get their pages at first touch: the thread that writes first decides the NUMA node.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace sterling::platform {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  // Empty: data() is null, size() 0.
  AlignedBuffer() = default;

  // `purpose` names the buffer in the error ("KV pool"). kResourceExhausted: the system has no such memory, or the size with
  // its padding doesn't fit a size_t. 0 bytes give an empty buffer.
  static Expected<AlignedBuffer> allocate(std::size_t bytes, std::string_view purpose);

  // allocated_bytes() of a buffer of `bytes`, for plans; 0 when the sum overflows.
  static std::size_t padded_bytes(std::size_t bytes);

  // `count` elements of T. kResourceExhausted also when count * sizeof(T) overflows.
  template <typename T>
  static Expected<AlignedBuffer> allocate_array(std::size_t count, std::string_view purpose) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) return too_large(count, sizeof(T), purpose);
    return allocate(count * sizeof(T), purpose);
  }

  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // What the buffer takes from the system, padding included: what a memory ledger has to count.
  std::size_t allocated_bytes() const { return allocated_; }

  // The whole buffer as elements of T; a remainder smaller than T is left out.
  template <typename T>
  std::span<T> as() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

  void swap(AlignedBuffer& other) noexcept;

 private:
  static Error too_large(std::size_t count, std::size_t element_size, std::string_view purpose);
  void release();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t allocated_ = 0;
};

}  // namespace sterling::platform
