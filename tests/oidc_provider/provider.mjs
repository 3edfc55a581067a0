// An OpenID provider on a free port of this machine, with accounts that are given as JSON: {login: claims}.
// It prints its issuer, and ends when its standard input does.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const accounts = JSON.parse(process.argv[2]);
const disabled = new Set();

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    features: {
      registration: { enabled: true }, // tests register the addresses of servers that have just begun
      devInteractions: { enabled: true }, // its pages for signing in and for agreeing
    },
    claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
    scopes: ["openid", "profile", "email", "groups"],
    conformIdTokenClaims: process.argv[3] !== "claims-in-token",
    async findAccount(_context, login) {
      if (!(login in accounts) || disabled.has(login)) return undefined;
      return { accountId: login, claims: async () => ({ ...accounts[login], sub: login }) };
    },
  });
  const answer = provider.callback();
  server.on("request", (request, response) => {
    const [, verb, login] = request.url.match(/^\/(disable|enable)\/(\w+)$/) ?? [];
    if (!verb) return answer(request, response);
    if (verb === "disable") disabled.add(login);
    else disabled.delete(login);
    response.end();
  });
  console.log(issuer);
});
process.stdin.on("end", () => process.exit()).resume();
