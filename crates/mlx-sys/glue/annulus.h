// What Annulus needs of MLX and mlx-c does not offer.
#pragma once

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes an array over memory that somebody else owns, without a copy. Only for the CPU backend, whose buffers are plain
// memory. At least eight readable bytes must lie in front of `data`: MLX keeps a buffer's size there and may look at it.
// `release(owner)` is called once, when the last array over the memory is gone, or at once when this fails.
// The memory must stay as it is until then. Returns 0, or 1 after calling mlx-c's error handler.
int annulus_array_over_memory(
    mlx_array* res,
    const void* data,
    const int* shape,
    int dim,
    mlx_dtype dtype,
    void* owner,
    void (*release)(void* owner));

// The number of nodes that evaluating the array would run: how many arrays are reachable from it and not yet evaluated.
int annulus_graph_size(size_t* res, mlx_array arr);

// An array as a computation sees it: element (i, j, ..) lies at data + (i * strides[0] + j * strides[1] + ..) elements.
typedef struct annulus_view {
  void* data;
  const int* shape;
  const int64_t* strides;
  size_t dim;
  mlx_dtype dtype;
} annulus_view;

// A computation that somebody else supplies. `run` is called once, on the stream's thread; it must not throw. It returns 0, or
// 1 after writing what went wrong into `problem`, which holds `problem_size` bytes and must end in 0: whoever evaluates its
// results, or what follows from them, gets that as an error. `release` is called once, on any thread, when nobody can call
// `run` any more.
typedef struct annulus_computation {
  void* owner;
  int (*run)(
      void* owner,
      const annulus_view* inputs,
      size_t input_count,
      const annulus_view* outputs,
      size_t output_count,
      char* problem,
      size_t problem_size);
  void (*release)(void* owner);
} annulus_computation;

// The arrays that a computation on the CPU makes of `inputs`, as one lazy operation. Of `outputs` only shape, dim and dtype
// are read; in the computation they are row-major. Inputs come as they lie. `name` is what MLX calls the operation in
// messages and lives as long as the program. Returns 0, or 1 after calling mlx-c's error handler; the computation is
// released either way.
int annulus_compute(
    mlx_vector_array* res,
    const char* name,
    mlx_vector_array inputs,
    const annulus_view* outputs,
    size_t output_count,
    annulus_computation computation,
    mlx_stream stream);

#ifdef __cplusplus
}
#endif
