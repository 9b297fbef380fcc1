/* Which SIMD levels this processor can run; asked once, at import. */
#include "sweep.h"

int usable_levels(void)
{
#ifdef MARGINPURSUIT_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")
        || !__builtin_cpu_supports("f16c"))
        return 1;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")
        || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 2;
    return 3;
#else
    return 1;
#endif
}

const kernels_t *kernels_at(int level)
{
#ifdef MARGINPURSUIT_X86
    if (level == 2) return &kernels_avx512;
    if (level == 1) return &kernels_avx2;
#endif
    (void)level;
    return &kernels_baseline;
}
