#include <unordered_set>
#include <vector>

#include "annulus.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"
#include "mlx/mlx.h"

namespace mx = mlx::core;

// The CPU allocator hands out memory behind a word that holds the buffer's size (mlx/backend/no_gpu/allocator.cpp).
constexpr size_t kBufferHeader = sizeof(size_t);

extern "C" int annulus_array_over_memory(
    mlx_array* res,
    const void* data,
    const int* shape,
    int dim,
    mlx_dtype dtype,
    void* owner,
    void (*release)(void*)) {
  try {
    auto* buffer = static_cast<char*>(const_cast<void*>(data)) - kBufferHeader;
    mx::array array(
        mx::Shape(shape, shape + dim), mlx_dtype_to_cpp(dtype), nullptr, {});
    array.set_status(mx::array::Status::available);
    array.set_data(
        mx::allocator::Buffer(buffer),
        [owner, release](mx::allocator::Buffer) { release(owner); });
    owner = nullptr;
    mlx_array_set_(*res, std::move(array));
  } catch (std::exception& e) {
    if (owner) {
      release(owner);
    }
    mlx_error(e.what());
    return 1;
  }
  return 0;
}

extern "C" int annulus_graph_size(size_t* res, mlx_array arr) {
  try {
    size_t nodes = 0;
    std::unordered_set<std::uintptr_t> seen;
    std::vector<mx::array> todo{mlx_array_get_(arr)};
    while (!todo.empty()) {
      auto array = std::move(todo.back());
      todo.pop_back();
      if (array.status() != mx::array::Status::unscheduled ||
          !array.has_primitive() || !seen.insert(array.id()).second) {
        continue;
      }
      // The outputs of one primitive are siblings: one node.
      for (auto& sibling : array.siblings()) {
        seen.insert(sibling.id());
      }
      nodes += 1;
      todo.insert(todo.end(), array.inputs().begin(), array.inputs().end());
    }
    *res = nodes;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
  return 0;
}
