"""The local engine: zygote, keeper, jail. Linux only; loaded by the local drivers, never by `import atoll`."""
