/** The texts of one language: made by the build. */
declare module "texts:*" {
  const texts: Record<string, string>;
  export default texts;
}
