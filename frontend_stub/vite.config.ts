import react from "@vitejs/plugin-react";
import type { ProxyOptions } from "vite";
import { defineConfig } from "vitest/config";

const SERVER = "http://127.0.0.1:3000";

/** The server checks Host and Origin, so the development proxy speaks as a page of the server itself. */
function proxyToServer(options: ProxyOptions = {}): ProxyOptions {
  return {
    target: SERVER,
    changeOrigin: true,
    rewriteWsOrigin: true,
    configure: (proxy) => {
      proxy.on("proxyReq", (request) => {
        if (request.getHeader("origin") !== undefined) request.setHeader("origin", SERVER);
      });
    },
    ...options,
  };
}

export default defineConfig({
  plugins: [react()],
  server: {
    host: "127.0.0.1",
    proxy: {
      "/api": proxyToServer(),
      "/socket.io": proxyToServer({ ws: true }),
    },
  },
  // Addresses in the page begin with "./", which the server turns into the path below which it is found.
  base: "./",
  build: {
    target: "es2022",
    // Inlined assets would be data: URLs; the page's policy allows them for images only.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
  },
  test: {
    environment: "jsdom",
    include: ["tests/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/setup.ts"],
    restoreMocks: true,
    // A machine that does much else takes long over what is quick; a test that hangs is told all the same.
    testTimeout: 30_000,
  },
});
