/* The SIMD levels that this processor can run; determined once, at import. */
#include "sweep.h"

#ifdef MARGINPURSUIT_X86
#include <cpuid.h>

/* Not every compiler knows the name f16c in __builtin_cpu_supports. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

int usable_levels(void)
{
#ifdef MARGINPURSUIT_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return 1;
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
