/* Which of the libraries compiled from these files the processor can run: 0 the plain one, 1 with AVX2, 2 with AVX-512. */
int mill_level(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return 2;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}
