// Symbols that mlx-rs expects and that only Apple's platforms, or compilers for aarch64, have.
#include "annulus.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/mlx.h"

// mlx_array_item_TYPE and mlx_array_data_TYPE over MLX's own TYPE_t, whose layout is that of its 16 bits.
#define ANNULUS_HALF_ACCESSORS(TYPE)                                  \
  extern "C" int mlx_array_item_##TYPE(                               \
      mlx::core::TYPE##_t* res, const mlx_array arr) {                \
    try {                                                             \
      *res = mlx_array_get_(arr).item<mlx::core::TYPE##_t>();         \
    } catch (std::exception & e) {                                    \
      mlx_error(e.what());                                            \
      return 1;                                                       \
    }                                                                 \
    return 0;                                                         \
  }                                                                   \
  extern "C" const mlx::core::TYPE##_t* mlx_array_data_##TYPE(        \
      const mlx_array arr) {                                          \
    try {                                                             \
      return mlx_array_get_(arr).data<mlx::core::TYPE##_t>();         \
    } catch (std::exception & e) {                                    \
      mlx_error(e.what());                                            \
      return nullptr;                                                 \
    }                                                                 \
  }

#ifndef HAS_FLOAT16
ANNULUS_HALF_ACCESSORS(float16)
#endif
#ifndef HAS_BFLOAT16
ANNULUS_HALF_ACCESSORS(bfloat16)
#endif

#ifndef __APPLE__
#include <chrono>

// mlx-rs seeds its default random state with it.
extern "C" uint64_t mach_approximate_time() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
#endif
